// Package archtest holds what the tests of lock-free types share: how long a
// stress test runs, how a busted variant must be caught, where an emulator makes
// an outcome worthless, and a torture for read-side critical sections. Nothing
// but tests imports it. Start at torture.go.
package archtest
