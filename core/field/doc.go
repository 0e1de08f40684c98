// Package field is the catalogue of what kpidd can show of a task: the name,
// header, width, JSON key, type, unit and origin of each field. ps -o, the JSON
// output, the socket and the documentation all read it here, so that they
// agree. The catalogue is generated from gen/spec/field.spec. Start at field.go.
package field

//go:generate go run ../../gen -spec ../../gen/spec/field.spec -out .
