package stations

import (
	"fmt"
	"sync/atomic"
)

// MAC is an Ethernet address of 48 bits.
type MAC uint64

// String returns the usual form, 02:00:5e:10:00:01.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x",
		byte(m>>40), byte(m>>32), byte(m>>24), byte(m>>16), byte(m>>8), byte(m))
}

// Station is what the bridge knows of an address.
type Station struct {
	port atomic.Uint32
}

// Bridge forwards frames to the port behind which their receiver was last heard.
// Port may be called by any number of goroutines; all else belongs to one.
type Bridge struct {
	tree *Tree48[Station]
}

// NewBridge returns a bridge that knows nobody.
func NewBridge() *Bridge { return &Bridge{tree: NewTree48[Station]()} }

// Port returns the port of an address; false means that it is not known.
func (b *Bridge) Port(address MAC) (port uint32, ok bool) {
	if s := b.tree.Lookup(uint64(address)); s != nil {
		return s.port.Load(), true
	}
	return 0, false
}

// Heard notes that a frame of the address came in by the port. An address of more
// than 48 bits is ErrTree48Key.
func (b *Bridge) Heard(address MAC, port uint32) error {
	key := uint64(address)
	s := b.tree.Lookup(key)
	if s != nil && b.tree.Tagged(key, Tree48Static) {
		return nil
	}
	if s == nil {
		s = new(Station)
		s.port.Store(port)
		if err := b.tree.InsertNew(key, s); err != nil {
			return fmt.Errorf("learn station %v: %w", address, err)
		}
		return nil
	}
	s.port.Store(port)
	b.tree.ClearTag(key, Tree48Quiet)
	return nil
}

// Pin keeps the address at the port, whatever is heard.
func (b *Bridge) Pin(address MAC, port uint32) error {
	if err := b.Heard(address, port); err != nil {
		return err
	}
	b.tree.SetTag(uint64(address), Tree48Static)
	return nil
}

// Announced notes that the station is a router.
func (b *Bridge) Announced(address MAC) { b.tree.SetTag(uint64(address), Tree48Router) }

// Routers returns the routers in the order of their addresses. It costs what they
// number, however many stations there are.
func (b *Bridge) Routers() (list []MAC) {
	for key := range b.tree.All(Tree48Router) {
		list = append(list, MAC(key))
	}
	return list
}

// Age forgets the stations that were not heard since the last call, and returns
// their number.
func (b *Bridge) Age() (forgotten int) {
	for key := range b.tree.All(Tree48Quiet) {
		b.tree.Delete(key)
		forgotten++
	}
	var buf [64]Tree48Entry[Station]
	for from, more := uint64(0), true; more; {
		var n int
		n, from, more = b.tree.GangAll(from, buf[:])
		for _, e := range buf[:n] {
			if !b.tree.Tagged(e.Key, Tree48Static) {
				b.tree.SetTag(e.Key, Tree48Quiet)
			}
		}
	}
	return forgotten
}
