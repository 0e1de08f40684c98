module example.org/stations

go 1.26.0

tool github.com/kpidd/kpidd/gen

require github.com/kpidd/kpidd v0.0.0

require github.com/dave/jennifer v1.7.1 // indirect

replace github.com/kpidd/kpidd => ../../../
