// Package stations is a worked example of kpidd's generator in a module of its
// own: a bridge's table of stations, which is a tree of 48-bit keys with three
// tags. stations.spec describes the tree, tree48_gen.go is emitted from it,
// bridge.go uses it. go.mod names the generator as a tool, so that its version is
// the one of the packages that emitted code imports.
package stations

//go:generate go run github.com/kpidd/kpidd/gen -spec stations.spec -pkg stations -out .
