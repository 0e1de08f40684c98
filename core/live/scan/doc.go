// Package scan takes a snapshot of every task of /proc: the start of a live
// table, its repair after a loss, and all that there is where no source of
// events may be opened. A snapshot is not of one moment; scan.go says exactly
// what it promises about tasks that come and go meanwhile. Start at Scanner.
package scan
