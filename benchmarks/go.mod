module github.com/kpidd/kpidd/benchmarks

go 1.26.0

require github.com/kpidd/kpidd v0.0.0

require golang.org/x/sys v0.50.0 // indirect

replace github.com/kpidd/kpidd => ../
