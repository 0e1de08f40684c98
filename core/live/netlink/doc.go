// Package netlink is the source of events that needs no privilege: the proc
// connector, which sends a datagram for every fork, exec, exit and rename. It
// costs several times what perf records cost, and can lose datagrams; it knows
// when it did. Start at Open and the header of Source; loss.go says how losses
// are found, selftest.go why the kernel's silence is not taken for peace.
package netlink
