package ns_test

import (
	"errors"
	"fmt"

	"github.com/kpidd/kpidd/core/ns"
	"golang.org/x/sys/unix"
)

// A process takes namespaces of its own, mounts the message queues of its new IPC
// namespace, and goes. What stays mounted elsewhere shows nobody's queues.
func Example() {
	r := ns.New(ns.Hooks{})
	admin := ns.Caller{Admin: true}
	child, err := r.Clone(r.First(), unix.CLONE_NEWIPC|unix.CLONE_NEWPID, admin)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(child.At(ns.IPC), "level", child.At(ns.PID).Level())
	if err := r.Mount(child, admin, ns.MQueue, "/dev/mqueue"); err != nil {
		fmt.Println(err)
	}
	sb := child.At(ns.IPC).Superblock(ns.MQueue)
	fmt.Println(sb.Mounts(), "mounts of one superblock; searches:", r.Stats().KeyedSearches)

	_, err = r.Clone(child, unix.CLONE_NEWUTS, ns.Caller{EUID: 1000})
	fmt.Println("EPERM:", errors.Is(err, unix.EPERM))

	child.Put()
	fmt.Println(sb.Mounts(), "mount, of", sb.Namespace())
	// Output:
	// ipc:[4026531840] level 1
	// 2 mounts of one superblock; searches: 1
	// EPERM: true
	// 1 mount, of <nil>
}

// A descriptor keeps a namespace that no process is in.
func ExampleFile() {
	r := ns.New(ns.Hooks{})
	admin := ns.Caller{Admin: true}
	s, _ := r.Unshare(r.First(), unix.CLONE_NEWNET, admin)
	f, _ := s.At(ns.Net).Open()
	s.Put()
	s, err := r.Setns(r.First(), f.Namespace(), unix.CLONE_NEWNET, admin)
	fmt.Println(err, s.At(ns.Net) == f.Namespace())
	fmt.Println(f.Close())
	s.Put()
	fmt.Println(r.Stats().Namespaces[ns.Net])
	// Output:
	// <nil> true
	// <nil>
	// 1
}

// The kernel gives the number of a dead namespace to the next one, here of another
// kind; the event that tells of it comes before that of the last process's exit.
func ExampleObserved() {
	o := ns.NewObserved()
	old := o.Met(ns.IPC, 4026532183)
	born := o.Created(ns.Net, 4026532183)
	o.Leave(old)
	fmt.Println(o.Count(ns.IPC), o.Count(ns.Net), old.Gen != born.Gen)
	// Output:
	// 0 1 true
}
