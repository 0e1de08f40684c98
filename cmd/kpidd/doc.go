// Command kpidd keeps a live table of every process and thread of the machine
// and reads it: kpidd run is the daemon, the other commands are its clients.
//
// Start reading at main.go (commands, exit codes), then daemon.go (how the
// parts are wired), ps.go and audit.go (clients that map the table).
package main
