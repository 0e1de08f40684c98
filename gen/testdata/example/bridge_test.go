package stations

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func Example() {
	b := NewBridge()
	for i, address := range []MAC{0x02005e100003, 0x02005e100001, 0xfe0000000002} {
		if err := b.Heard(address, uint32(i)); err != nil {
			fmt.Println(err)
		}
	}
	if err := b.Pin(0x02005e100001, 7); err != nil {
		fmt.Println(err)
	}
	b.Announced(0xfe0000000002)
	b.Announced(0x02005e100003)
	fmt.Println(b.Routers())
	fmt.Println(b.Age(), b.Age())
	fmt.Println(b.Port(0x02005e100001))
	fmt.Println(b.Port(0xfe0000000002))
	// Output:
	// [02:00:5e:10:00:03 fe:00:00:00:00:02]
	// 0 2
	// 7 true
	// 0 false
}

func TestAddressTooWide(t *testing.T) {
	if err := NewBridge().Heard(Tree48KeyMax+1, 1); !errors.Is(err, ErrTree48Key) {
		t.Errorf("got %v, want %v", err, ErrTree48Key)
	}
}

// Readers look up while the writer learns and forgets: a station that stays has
// its port at any moment, one that comes and goes has its port or none.
func TestStressPort(t *testing.T) {
	b := NewBridge()
	const stays, goes = MAC(0x02005e100001), MAC(0x02005e100002)
	if err := b.Pin(stays, 7); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				if port, ok := b.Port(stays); !ok || port != 7 {
					t.Errorf("a station that stays: got %d, %v", port, ok)
					return
				}
				if port, ok := b.Port(goes); ok && port != 8 {
					t.Errorf("a station that comes and goes: got %d", port)
					return
				}
			}
		})
	}
	forgotten := 0
	for range 1000 {
		if err := b.Heard(goes, 8); err != nil {
			t.Error(err)
		}
		forgotten += b.Age() + b.Age()
	}
	stop.Store(true)
	readers.Wait()
	if forgotten != 1000 {
		t.Errorf("forgot %d stations, want 1000", forgotten)
	}
	if err := b.tree.Check(); err != nil {
		t.Error(err)
	}
}
