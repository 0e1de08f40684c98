module github.com/kpidd/kpidd/benchmarks

go 1.26.0

require (
	github.com/google/btree v1.1.3
	github.com/kpidd/kpidd v0.0.0
	github.com/puzpuzpuz/xsync/v3 v3.5.1
	gvisor.dev/gvisor v0.0.0-20260224225140-573d5e7127a8
)

require golang.org/x/sys v0.50.0 // indirect

replace github.com/kpidd/kpidd => ../
