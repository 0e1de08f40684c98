package arch

import "runtime"

// goroutine is the portable half of owner_generic.go: it reads the number from
// the first line of a stack trace, "goroutine 18 [running]:". It is always built,
// so that one test compares it with the assembly. 0 means that it found none.
func goroutine() uint64 {
	var buf [32]byte
	n := uint64(0)
	for _, c := range buf[len("goroutine "):max(len("goroutine "), runtime.Stack(buf[:], false))] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
