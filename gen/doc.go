// Command gen writes the generated files of kpidd from the text specifications
// in gen/spec. It is run by go generate and imported by nothing:
//
//	go run ./gen -spec gen/spec/radix.spec -out generated/radix
//
// Other modules run it too; docs/generated.md describes specifications and what
// they give. spec.go reads a specification, emit.go hands its blocks to the
// emitters, one file each: radix.go and its parts, record.go, seqcount.go, epoch.go
// and srcu.go over domain.go, retire.go, queue.go, layout.go, catalogue.go.
package main
