package ns

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// script turns bytes into calls, sense or nonsense, of a few processes, makes each
// to the registry and to the model, and compares outcome and state.
type script struct {
	t     testing.TB
	r     *Registry
	m     *model
	procs []*Set // as in m
	files []*File
	bytes []byte
	met   map[unix.Errno]int
}

const scriptProcs = 10

func runScript(t testing.TB, b []byte, met map[unix.Errno]int) {
	s := &script{t: t, r: newRegistry(t), m: newModel(), bytes: b, met: met}
	s.procs = []*Set{s.r.First()}
	s.r.Use(ways[s.next()%len(ways)])
	for n := 0; len(s.bytes) > 0 && n < 300; n++ {
		what := s.step()
		s.m.collect()
		s.compare(what)
		if t.Failed() {
			t.Fatalf("after %d calls", n+1)
		}
	}
	for _, p := range s.procs[1:] {
		p.Put()
	}
	for _, f := range s.files {
		wantErrno(t, "close", f.Close(), 0)
	}
	for len(s.r.First().At(Mount).mounts.list) > 0 {
		wantErrno(t, "unmount", s.r.Unmount(s.r.First(), root, s.r.First().At(Mount).mounts.list[0].target), 0)
	}
	check(t, s.r, held())
}

func (s *script) next() int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b)
}

// flags are seldom many at once.
func (s *script) flags() (flags uint64) {
	b := s.next()
	for k := range Kind(Kinds) {
		if b>>k&1 != 0 && (b%3 == 0 || bitsOf(b) < 3) {
			flags |= k.Flag()
		}
	}
	switch b := s.next(); {
	case b < 20:
		flags |= unix.CLONE_FS
	case b < 40:
		flags |= unix.CLONE_SYSVSEM
	case b < 60:
		flags |= unix.CLONE_THREAD | unix.CLONE_VM
	case b < 90:
		flags |= unix.CLONE_VM
	}
	return flags
}

func bitsOf(b int) (n int) {
	for ; b != 0; b &= b - 1 {
		n++
	}
	return n
}

func (s *script) caller() Caller {
	b := s.next()
	return Caller{EUID: uint32(b & 1), Admin: b&14 != 0, Threaded: b >= 224, SharesFS: b&48 == 48}
}

func (s *script) step() string {
	op, i := s.next()%16, s.next()
	i %= len(s.procs)
	p, q, by := s.procs[i], s.m.procs[i], s.caller()
	target := fmt.Sprint("/", s.next()%3)
	fstype := [...]string{MQueue, sysfs, shared}[s.next()%3]
	switch op {
	case 0, 1, 2, 3:
		flags := s.flags()
		n, err := s.r.Clone(p, flags, by)
		m, errno := s.m.clone(q, flags, by)
		what := fmt.Sprintf("clone of %d with %#x by %+v", i, flags, by)
		if s.same(what, err, errno) {
			s.procs, s.m.procs = append(s.procs, n), append(s.m.procs, m)
		}
		if len(s.procs) > scriptProcs {
			s.exit(1 + s.next()%(len(s.procs)-1))
		}
		return what
	case 4, 5:
		flags := s.flags()
		n, err := s.r.Unshare(p, flags&^unix.CLONE_SYSVSEM, by)
		m, errno := s.m.unshare(q, flags, by)
		what := fmt.Sprintf("unshare of %d with %#x by %+v", i, flags, by)
		s.become(what, i, n, m, err, errno)
		return what
	case 6, 7, 8:
		k := Kind(s.next() % Kinds)
		target, into := s.pick(k)
		n, err := s.r.Setns(p, target, 0, by)
		m, errno := s.m.setns(q, into, by)
		what := fmt.Sprintf("setns of %d to %v by %+v", i, target, by)
		s.become(what, i, n, m, err, errno)
		return what
	case 9:
		if i > 0 {
			s.exit(i)
		}
		return fmt.Sprintf("exit of %d", i)
	case 10:
		s.file()
		return "open or close"
	case 11, 12:
		what := fmt.Sprintf("mount of %s on %s by %d, %+v", fstype, target, i, by)
		s.same(what, s.r.Mount(p, by, fstype, target), s.m.mount(q, by, fstype, target))
		return what
	case 13:
		what := fmt.Sprintf("unmount of %s by %d, %+v", target, i, by)
		s.same(what, s.r.Unmount(p, by, target), s.m.unmount(q, by, target))
		return what
	case 14:
		n, m := s.pick(Kind(s.next() % Kinds))
		what := fmt.Sprintf("bind of %v on %s by %d, %+v", n, target, i, by)
		s.same(what, s.r.Bind(p, by, n, target), s.m.bind(q, by, m, target))
		return what
	}
	limit := s.next() % 4
	p.At(User).SetMax(UTS, int32(limit))
	q.at[User].maxUTS = limit
	return "limit"
}

// same compares outcomes and reports whether there is a result.
func (s *script) same(what string, err error, errno unix.Errno) bool {
	s.met[errno]++
	wantErrno(s.t, what, err, errno)
	return err == nil && errno == 0
}

func (s *script) become(what string, i int, n *Set, m *modelProc, err error, errno unix.Errno) {
	if !s.same(what, err, errno) {
		return
	}
	if i == 0 { // the first set stays; its namespaces live with a process of their own
		s.procs, s.m.procs = append(s.procs, n), append(s.m.procs, m)
		return
	}
	s.procs[i].Put()
	s.procs[i], s.m.procs[i] = n, m
}

func (s *script) exit(i int) {
	s.procs[i].Put()
	s.procs = slices.Delete(s.procs, i, i+1)
	s.m.procs = slices.Delete(s.m.procs, i, i+1)
}

// pick is a namespace that a process or a file has.
func (s *script) pick(k Kind) (*Namespace, *modelNS) {
	if b := s.next(); b < 60 && len(s.files) > 0 {
		b %= len(s.files)
		return s.files[b].Namespace(), s.m.files[b]
	}
	i := s.next() % len(s.procs)
	return s.procs[i].At(k), s.m.procs[i].at[k]
}

func (s *script) file() {
	if i := s.next(); i%2 == 0 && len(s.files) > 0 || len(s.files) > 4 {
		i %= len(s.files)
		wantErrno(s.t, "close", s.files[i].Close(), 0)
		s.files = slices.Delete(s.files, i, i+1)
		s.m.files = slices.Delete(s.m.files, i, i+1)
		return
	}
	n, m := s.pick(Kind(s.next() % Kinds))
	f, err := n.Open()
	wantErrno(s.t, "open", err, 0)
	s.files, s.m.files = append(s.files, f), append(s.m.files, m)
}

// compare holds the registry against the model, and against itself.
func (s *script) compare(what string) {
	from := held(s.procs[1:]...)
	from.files = s.files
	err := errors.Join(examine(s.r, from), s.compareSets(), s.compareNamespaces(), s.compareSupers())
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

func (s *script) compareSets() error {
	for i, p := range s.procs {
		m := s.m.procs[i]
		for k := range Kind(Kinds) {
			if p.At(k).inum != m.at[k].inum {
				return fmt.Errorf("process %d: %v, want number %d", i, p.At(k), m.at[k].inum)
			}
		}
		if p.ForChildren(PID).inum != m.pidFC.inum || p.ForChildren(Time).inum != m.timFC.inum {
			return fmt.Errorf("process %d: %v, want %d and %d for children", i, p, m.pidFC.inum, m.timFC.inum)
		}
	}
	return nil
}

func inumOf(m *modelNS) uint32 {
	if m == nil {
		return 0
	}
	return m.inum
}

func (s *script) compareNamespaces() error {
	for m := range s.m.alive {
		n := s.r.Lookup(m.kind, m.inum)
		if n == nil {
			return fmt.Errorf("%v:[%d] is dead, want it alive", m.kind, m.inum)
		}
		var owner, parent uint32
		if n.owner != nil {
			owner = n.owner.inum
		}
		if n.parent != nil {
			parent = n.parent.inum
		}
		if n.level != m.level || owner != inumOf(m.owner) || parent != inumOf(m.parent) {
			return fmt.Errorf("%v: level %d, owner %d, parent %d; want %d, %d, %d",
				n, n.level, owner, parent, m.level, inumOf(m.owner), inumOf(m.parent))
		}
	}
	if got := len(s.r.all()); got != len(s.m.alive) {
		return fmt.Errorf("%d namespaces live, want %d", got, len(s.m.alive))
	}
	return nil
}

func (s *script) compareSupers() error {
	var got, want []string
	for _, fstype := range []string{MQueue, sysfs, shared} {
		for _, sb := range s.r.Superblocks(fstype) {
			var key uint32
			if n := sb.key.Load(); n != nil {
				key = n.inum
			}
			got = append(got, fmt.Sprintf("%s of %d, user %d, %d mounts", fstype, key, sb.user.inum, sb.Mounts()))
		}
	}
	for sb, mounts := range s.m.supers() {
		want = append(want, fmt.Sprintf("%s of %d, user %d, %d mounts", sb.fstype, inumOf(sb.key), sb.user.inum, mounts))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("superblocks:\n got %q\nwant %q", got, want)
	}
	return nil
}
