// Package srcu holds a domain of sleepable read-copy-update: its readers may block
// inside a section and nest sections, and keep nobody waiting but the grace
// periods of their own domain. The type is generated from gen/spec/srcu.spec.
// Readers that do not block are cheaper to wait for in package epoch. Start at
// Domain.
package srcu

//go:generate go run ../../gen -spec ../../gen/spec/srcu.spec -out .
