package task_test

import (
	"fmt"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
	"golang.org/x/sys/unix"
)

// The engine as a library: a PID namespace, a few clones, a listing.
func Example() {
	w, err := table.NewAnonymous()
	if err != nil {
		panic(err)
	}
	defer w.Close()
	e := task.New(w, 100)
	init, err := e.Start([16]byte{'i', 'n', 'i', 't'})
	if err != nil {
		panic(err)
	}
	clone := func(tid uint32, flags uint64) uint32 {
		child, err := e.Clone(tid, &task.CloneArgs{Flags: flags})
		if err != nil {
			panic(err)
		}
		return child
	}
	container := clone(init, unix.CLONE_NEWPID)
	shell := clone(container, 0)
	for range 3 {
		clone(shell, task.ThreadFlags)
	}
	if err := e.Exec(shell, [16]byte{'s', 'h'}); err != nil {
		panic(err)
	}
	clone(shell, 0)

	ns := e.Pids().NamespaceOf(e.Namespace().Find(container))
	var h table.Hot
	for walk := ns.Leaders(0); walk.Next(&h); {
		fmt.Printf("%d here is %d outside, child of %d: %s\n", walk.Number(), h.TID, h.PPID, h.Name())
	}

	if err := e.Exit(container, task.Exited(0)); err != nil { // its reaper
		panic(err)
	}
	got, err := e.Wait(init, -1, 0)
	fmt.Println("waited for", got.PID, err)
	_, err = e.Wait(init, -1, 0)
	fmt.Println(err)
	// Output:
	// 1 here is 2 outside, child of 1: init
	// 2 here is 3 outside, child of 2: sh
	// 6 here is 7 outside, child of 3: sh
	// waited for 2 <nil>
	// wait for -1 in task 1: no child processes
}
