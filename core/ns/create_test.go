package ns

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// M2: a failure on the way undoes what was taken. Each step of each making is
// refused once, for all kinds and for all at once.
func TestCreateUndone(t *testing.T) {
	flags := []uint64{namespaceFlags, namespaceFlags &^ unix.CLONE_NEWUSER}
	for k := range Kind(Kinds) {
		flags = append(flags, k.Flag())
	}
	for _, how := range ways {
		for _, f := range flags {
			t.Run(fmt.Sprintf("%v/%#x", how, f), func(t *testing.T) {
				r := newRegistry(t)
				r.Use(how)
				handles := 0
				r.hooks = Hooks{
					MakePID: func(_, level uint32) (uint32, error) { handles++; return level, nil },
					DropPID: func(uint32) { handles-- },
				}
				// A mount namespace whose copy has something to give back.
				from := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNS, root))
				wantErrno(t, "mount", r.Mount(from, root, sysfs, "/sys"), 0)
				wantErrno(t, "bind", r.Bind(from, root, from.At(UTS), "/uts"), 0)
				refuseEach(t, r, from, f)
				if handles != 0 {
					t.Errorf("M2: %d id trees are left", handles)
				}
			})
		}
	}
}

func refuseEach(t *testing.T, r *Registry, from *Set, flags uint64) {
	before := r.Stats().Namespaces
	at := held(from)
	for refused := 0; ; refused++ {
		n := 0
		r.refuse = func(step) error {
			if n++; n > refused {
				return unix.ENOMEM
			}
			return nil
		}
		s, err := r.Clone(from, flags, root)
		if err == nil {
			r.refuse = nil
			want := s.String()
			s.Put()
			again := must(t)(r.Clone(from, flags, root))
			if got := again.String(); got != want {
				t.Errorf("after all errors: got %s, want the numbers of %s", got, want)
			}
			if refused == 0 {
				t.Error("no step was refused")
			}
			again.Put()
			check(t, r, at)
			return
		}
		if !errors.Is(err, unix.ENOMEM) {
			t.Fatalf("step %d: got %v, want %v", refused, err, unix.ENOMEM)
		}
		if got := r.Stats().Namespaces; got != before {
			t.Fatalf("M2: step %d: %v namespaces, want %v as before", refused, got, before)
		}
		check(t, r, at)
	}
}

// The error of whoever keeps the ids comes back, and nothing stays.
func TestMakePIDRefuses(t *testing.T) {
	made := []uint32{}
	r := New(Hooks{
		MakePID: func(parent, level uint32) (uint32, error) {
			if level == 3 {
				return 0, unix.ENOMEM
			}
			made = append(made, parent)
			return 100 + level, nil
		},
		DropPID: func(handle uint32) {
			if handle != 100+uint32(len(made)) {
				t.Errorf("handle %d is dropped while %v is the newest", handle, made)
			}
			made = made[:len(made)-1]
		},
	})
	a := must(t)(r.Clone(r.First(), unix.CLONE_NEWPID, root))
	b := must(t)(r.Clone(a, unix.CLONE_NEWPID|unix.CLONE_NEWIPC, root))
	if h := b.At(PID).Handle(); h != 102 {
		t.Errorf("got handle %d, want 102", h)
	}
	_, err := r.Clone(b, unix.CLONE_NEWPID|unix.CLONE_NEWUSER|unix.CLONE_NEWIPC, root)
	wantErrno(t, "MakePID", err, unix.ENOMEM)
	check(t, r, held(a, b))
	a.Put() // b is below it
	if len(made) != 2 {
		t.Errorf("%d id trees after the parent's last process, want 2: it has a child", len(made))
	}
	b.Put()
	if len(made) != 0 {
		t.Errorf("%d id trees are left", len(made))
	}
	check(t, r, held())
}

// M1.9: ENOSPC beyond 32 levels. User namespaces end one level later.
func TestLevels(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		max  uint32
	}{{PID, 32}, {User, 33}} {
		t.Run(c.kind.String(), func(t *testing.T) {
			r := newRegistry(t)
			sets := []*Set{r.First()}
			at := held()
			for {
				s, err := r.Clone(sets[len(sets)-1], c.kind.Flag(), root)
				if err != nil {
					wantErrno(t, "too deep", err, unix.ENOSPC)
					break
				}
				sets = append(sets, s)
				at.sets[s] = 1
			}
			if got := sets[len(sets)-1].At(c.kind).Level(); got != c.max {
				t.Errorf("the deepest level is %d, want %d", got, c.max)
			}
			check(t, r, at)
			for _, s := range sets[1:] { // the top first
				s.Put()
			}
			check(t, r, held())
		})
	}
}

// ENOSPC when a user namespace, or one above it, has as many as it may have.
func TestMax(t *testing.T) {
	r := newRegistry(t)
	outer := must(t)(r.Unshare(r.First(), unix.CLONE_NEWUSER, nobody))
	inner := must(t)(r.Unshare(outer, unix.CLONE_NEWUSER, nobody))
	at := held(outer, inner)
	outer.At(User).SetMax(UTS, 2)
	for range 2 {
		at.sets[must(t)(r.Unshare(inner, unix.CLONE_NEWUTS, root))] = 1
	}
	for _, s := range []*Set{inner, outer} {
		_, err := r.Unshare(s, unix.CLONE_NEWIPC|unix.CLONE_NEWUTS, root)
		wantErrno(t, "one more", err, unix.ENOSPC)
		check(t, r, at)
	}
	at.sets[must(t)(r.Unshare(inner, unix.CLONE_NEWIPC, root))] = 1
	at.sets[must(t)(r.Unshare(r.First(), unix.CLONE_NEWUTS, root))] = 1
	check(t, r, at)
	outer.At(User).SetMax(UTS, 3)
	at.sets[must(t)(r.Unshare(inner, unix.CLONE_NEWUTS, root))] = 1
	check(t, r, at)
}

// Numbers run out: ENOSPC, and nothing stays.
func TestNumbersUsedUp(t *testing.T) {
	r := newRegistry(t)
	s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWUTS, root))
	if got := s.At(UTS).Inum(); got != firstDynamic {
		t.Errorf("the first number given is %d, want %d", got, uint32(firstDynamic))
	}
	for key := numberKey(firstDynamic) + 1; key < numberKey(firstDynamic)+4; key++ {
		wantErrno(t, "reserve", r.tree.ReserveAt(key), 0)
	}
	ipc := must(t)(r.Unshare(r.First(), unix.CLONE_NEWIPC, root))
	if got := ipc.At(IPC).Inum(); got != firstDynamic+4 {
		t.Errorf("got number %d, want the lowest free %d", got, uint32(firstDynamic+4))
	}
	inum := s.At(UTS).Inum()
	s.Put()
	net := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNET, root))
	if got := net.At(Net).Inum(); got != inum || r.Lookup(UTS, inum) != nil || r.Lookup(Net, inum) != net.At(Net) {
		t.Errorf("number %d: %v, want the dead uts namespace's for the net namespace", inum, net.At(Net))
	}
}
