// Package deferred holds a queue for work that is put off until after a lock:
// each writer fills a ring of its own and hands it over by the batch, one
// consumer takes what was handed over. The type is generated from
// gen/spec/deferred.spec. Start at Queue.
package deferred

//go:generate go run ../../gen -spec ../../gen/spec/deferred.spec -out .
