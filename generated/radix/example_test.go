package radix

import (
	"errors"
	"fmt"
)

type process struct{ name string }

func ExampleTree8() {
	cpus := NewTree8[string]()
	online := "online"
	for _, cpu := range []uint8{0, 1, 5} {
		if err := cpus.InsertNew(cpu, &online); err != nil {
			fmt.Println(err)
		}
	}
	for cpu, state := range cpus.All() {
		fmt.Print(cpu, " ", *state, "; ")
	}
	// Output: 0 online; 1 online; 5 online;
}

func ExampleTree16() {
	ports := NewTree16[process]()
	if _, err := ports.Insert(22, &process{"sshd"}); err != nil {
		fmt.Println(err)
	}
	ports.SetTag(22, Tree16Dirty)
	for port, p := range ports.All(Tree16Dirty) {
		fmt.Println(port, p.name)
	}
	// Output: 22 sshd
}

// A number is reserved first and becomes visible when the process is complete.
func ExampleTree22GC() {
	pids := NewTree22GC[process]()
	pid, err := pids.ReserveCyclic(1, Tree22GCKeyMax)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pids.Lookup(pid) == nil)
	pids.Publish(pid, &process{"init"})
	pids.SetTag(pid, Tree22GCTGID)
	key, p, _ := pids.NextTagged(0, Tree22GCTGID)
	fmt.Println(key, p.name)
	fmt.Println(errors.Is(pids.AllocAt(pid, &process{"other"}), ErrTree22GCTaken))
	// Output:
	// true
	// 1 init
	// true
}

// A value is the id of a slab slot and its generation.
func ExampleTree22Slab() {
	pids := NewTree22Slab()
	const slot, generation = 7, 3
	pid, err := pids.Alloc(generation<<32 | slot)
	if err != nil {
		fmt.Println(err)
	}
	value := pids.Lookup(pid)
	fmt.Println(pid, uint32(value), value>>32)
	// Output: 0 7 3
}

func ExampleTree32() {
	cgroups := NewTree32[string]()
	name := "system.slice"
	if _, err := cgroups.Insert(1<<31, &name); err != nil {
		fmt.Println(err)
	}
	var buf [4]Tree32Entry[string]
	n, _, more := cgroups.GangAll(0, buf[:])
	fmt.Println(buf[0].Key, *buf[0].Value, n, more)
	// Output: 2147483648 system.slice 1 false
}

func ExampleTree32Slab() {
	cgroups := NewTree32Slab()
	if err := cgroups.InsertNew(42, 1<<32|9); err != nil {
		fmt.Println(err)
	}
	fmt.Println(uint32(cgroups.Delete(42)), cgroups.Lookup(42))
	// Output: 9 0
}

// The tree grows with its keys.
func ExampleTree64() {
	inodes := NewTree64[string]()
	for _, inode := range []uint64{4_026_531_836, 3, 1 << 63} {
		name := fmt.Sprintf("ns:[%d]", inode)
		if err := inodes.AllocAt(inode, &name); err != nil {
			fmt.Println(err)
		}
	}
	inodes.SetTag(3, Tree64Dirty)
	inodes.SetTag(1<<63, Tree64Dirty)
	for _, name := range inodes.All(Tree64Dirty) {
		fmt.Println(*name)
	}
	// Output:
	// ns:[3]
	// ns:[9223372036854775808]
}

func ExampleTree64Slab() {
	ids := NewTree64Slab()
	id, err := ids.AllocRange(100, 199, 1<<32|5)
	fmt.Println(id, err, ids.Free(id), ids.IsFree(id))
	// Output: 100 <nil> true true
}
