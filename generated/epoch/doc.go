// Package epoch holds a domain of read-copy-update told by epochs: readers that
// neither block nor nest enter and exit by one plain store each, and writers
// retire handles, slots or ids, that are reclaimed in batches after a grace
// period. The types are generated from gen/spec/epoch.spec, a writer for each
// width of handle. Start at Domain, then Writer32.
package epoch

//go:generate go run ../../gen -spec ../../gen/spec/epoch.spec -out .
