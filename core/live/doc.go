// Package live follows the running kernel: it takes the records of an event
// source, orders, repairs and applies them to the engine, and tells the event
// feed what changed.
//
// Sources (perf, netlink, poll) are packages below it and implement Source; scan
// takes snapshots of /proc. Start reading at follower.go (the loop), then apply.go
// (one event) and resync.go (start without a gap, repair after a loss).
package live
