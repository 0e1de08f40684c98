package task_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/internal/privileged"
	"golang.org/x/sys/unix"
)

// The orders of testdata/conform/puppet.c.
const (
	orderClone = iota + 1
	orderExec
	orderExit
	orderExitGroup
	orderSetsid
	orderSetpgid
	orderUnshare
	orderWait
	orderKill
	orderSubreaper
	orderSigchld
	orderIDs
	orderList
	orderPIDMax
	orderLastPID
	orderSetuid
	orderMQueue
	orderUmount
	orderSetns
)

const (
	boardSlots   = 128
	boardLevels  = 33
	patience     = 10 * time.Second // for anything that the kernel is to do
	peekInterval = 20 * time.Microsecond
)

// boardSlot is struct slot of puppet.c.
type boardSlot struct {
	order, reply, born, op uint32
	arg                    [4]int64
	result                 int64
	tgid, tid              int32
	info                   [4]int32
	setTID                 [boardLevels]int32
	setTIDSize             int32
	text                   [1832]byte
}

var _ [0]struct{} = [unsafe.Sizeof(boardSlot{}) - 2048]struct{}{}

// kernel plays a script on the running kernel: each task is a real one, in a PID
// namespace of its own that ends with the script. It belongs to one goroutine.
type kernel struct {
	board   *[boardSlots]boardSlot
	mem     []byte
	next    uint32 // slot without a task yet
	init    *exec.Cmd
	proc    *procfile.Proc // of the namespace
	root    string         // where that is mounted
	reaped  int            // groups that nobody had to wait for
	ids     *prober
	dev     int          // of the file system mounted last
	zaps    bool         // a reaper has ended, and may be
	zapping map[int]bool // one that waits for its namespace
}

// buildPuppet compiles the program that the tasks run.
func buildPuppet(t testing.TB) (path string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		privileged.Missing(t, "cc")
	}
	path = filepath.Join(t.TempDir(), "puppet")
	out, err := exec.Command(cc, "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", path,
		filepath.Join("testdata", "conform", "puppet.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return path
}

// newKernel makes the namespace and its reaper. The caller closes it.
func newKernel(puppet string) (*kernel, error) {
	fd, err := unix.MemfdCreate("conform board", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "board")
	defer file.Close()
	size := int(unsafe.Sizeof([boardSlots]boardSlot{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	k := &kernel{mem: mem, board: (*[boardSlots]boardSlot)(unsafe.Pointer(&mem[0])), next: 1, zapping: map[int]bool{}}
	k.init = exec.Command(puppet, "3", "0")
	k.init.ExtraFiles = []*os.File{file}
	k.init.Stderr = os.Stderr
	k.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Setsid: true}
	if err := k.init.Start(); err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	return k, nil
}

// close ends the namespace, and with it every task of the script.
func (k *kernel) close() {
	k.init.Process.Kill()
	k.init.Wait()
	if k.ids != nil {
		k.ids.close()
	}
	if k.proc != nil {
		k.proc.Close()
	}
	unix.Munmap(k.mem)
}

func (k *kernel) begin(init *actor) error {
	if err := k.await(&k.board[0].born, 0, nil); err != nil {
		return fmt.Errorf("the namespace's reaper: %w", err)
	}
	init.tgid, init.tid, init.numbers = 1, 1, []int{1}
	k.root = fmt.Sprintf("/proc/%d/root/proc", k.init.Process.Pid)
	var err error
	if k.ids, err = newProber(k.init.Process.Pid); err != nil {
		return err
	}
	k.proc, err = procfile.Open(k.root)
	return err
}

// await waits until a word of the board is no longer old, or until done.
func (k *kernel) await(word *uint32, old uint32, done func() bool) error {
	tick := unix.NsecToTimespec(int64(2 * time.Millisecond))
	for end := time.Now().Add(patience); atomic.LoadUint32(word) == old; {
		if done != nil && done() {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("no answer")
		}
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0, uintptr(old), uintptr(unsafe.Pointer(&tick)), 0, 0)
	}
	return nil
}

// post gives the task of a slot an order.
func (k *kernel) post(slot uint32, op uint32, args ...int) (s *boardSlot, old uint32) {
	s = &k.board[slot]
	s.op = op
	for i, a := range args {
		s.arg[i] = int64(a)
	}
	old = atomic.LoadUint32(&s.reply)
	atomic.StoreUint32(&s.order, old+1)
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&s.order)), 1, 1, 0, 0, 0)
	return s, old
}

// call gives an order and waits for its result.
func (k *kernel) call(by *actor, op uint32, args ...int) (int, error) {
	s, old := k.post(by.slot, op, args...)
	if err := k.await(&s.reply, old, nil); err != nil {
		return 0, err
	}
	return int(s.result), nil
}

// outcome is how a step's result is written.
func outcome(result int) string {
	if result < 0 {
		return unix.ErrnoName(unix.Errno(-result))
	}
	return "ok"
}

func (k *kernel) do(s *step, by *actor, c *cast, made *actor) (string, error) {
	simple := func(op uint32, args ...int) (string, error) {
		result, err := k.call(by, op, args...)
		return outcome(result), err
	}
	switch s.verb {
	case doClone:
		return k.clone(s, by, made)
	case doExec:
		return k.exec(by, c)
	case doExit:
		k.post(by.slot, orderExit, s.value)
		return "ok", k.settle(c, by.leader, by)
	case doExitGroup:
		k.post(by.slot, orderExitGroup, s.value)
		return "ok", k.settle(c, by.leader, nil)
	case doKill:
		return k.kill(s, by, c)
	case doSetsid:
		result, err := k.call(by, orderSetsid)
		if result > 0 {
			return fmt.Sprint("ok ", result), err
		}
		return outcome(result), err
	case doSetpgid:
		return simple(orderSetpgid, c.number(s.name, by), c.number(s.group, by))
	case doUnshare:
		return simple(orderUnshare, int(s.flags))
	case doWait:
		return k.wait(s, by, c)
	case doSubreaper:
		return simple(orderSubreaper, s.value)
	case doSigchld:
		return simple(orderSigchld, map[string]int{"SIG_DFL": 0, "SIG_IGN": 1, "SA_NOCLDWAIT": 2}[s.what])
	case doIDs:
		pid, err := k.call(by, orderIDs)
		info := &k.board[by.slot].info
		return fmt.Sprint(pid, info[0], info[1], info[2], info[3]), err
	case doList:
		result, err := k.call(by, orderList)
		if result < 0 {
			return outcome(result), err
		}
		return strings.TrimSpace(unix.ByteSliceToString(k.board[by.slot].text[:])), err
	case doPIDMax:
		return simple(orderPIDMax, s.value)
	case doLastPID:
		return simple(orderLastPID, s.value)
	case doSetuid:
		return simple(orderSetuid, s.value)
	case doMQueue:
		target, _ := s.target()
		dev, err := k.call(by, orderMQueue, target)
		k.dev = dev
		return outcome(dev), err
	case doUmount:
		target, _ := s.target()
		return simple(orderUmount, target)
	case doSetns:
		return simple(orderSetns, c.actors[s.name].tgid, c.actors[s.name].tid)
	}
	return "", fmt.Errorf("no order for %s", s.verb)
}

func (k *kernel) clone(s *step, by, made *actor) (string, error) {
	if k.next == boardSlots {
		return "", errors.New("the board is full")
	}
	if len(s.setTID) > boardLevels {
		return "", errors.New("too many requested numbers for the board")
	}
	made.slot = k.next
	k.next++
	mine := &k.board[by.slot]
	mine.setTIDSize = int32(len(s.setTID))
	for i, nr := range s.setTID {
		mine.setTID[i] = int32(nr)
	}
	_, old := k.post(by.slot, orderClone, int(made.slot), int(s.flags))
	child := &k.board[made.slot]
	answered := func() bool { return atomic.LoadUint32(&mine.reply) != old }
	if s.has(unix.CLONE_VFORK) {
		err := k.await(&child.born, 0, answered)
		if err != nil || answered() {
			return outcome(int(mine.result)), err
		}
	} else {
		if err := k.await(&mine.reply, old, nil); err != nil {
			return "", err
		}
		if mine.result < 0 {
			return outcome(int(mine.result)), nil
		}
		if err := k.await(&child.born, 0, nil); err != nil {
			return "", fmt.Errorf("the new task: %w", err)
		}
	}
	made.tgid, made.tid = int(child.tgid), int(child.tid)
	var err error
	if made.numbers, err = k.numbers(made.tgid, made.tid); err != nil {
		return "", err
	}
	return fmt.Sprint("ok ", made.number(by.space)), nil
}

// exec is over when the new image serves the leader's slot.
func (k *kernel) exec(by *actor, c *cast) (string, error) {
	born := &k.board[by.leader.slot].born
	before := atomic.LoadUint32(born)
	s, old := k.post(by.slot, orderExec, int(by.leader.slot))
	failed := func() bool { return by != by.leader && atomic.LoadUint32(&s.reply) != old }
	if err := k.await(born, before, failed); err != nil {
		return "", err
	}
	if failed() {
		return outcome(int(s.result)), nil
	}
	return "ok", k.freed(c)
}

func (k *kernel) wait(s *step, by *actor, c *cast) (string, error) {
	which, id := 0, 0
	switch s.group {
	case "pid":
		which, id = unix.P_PID, c.number(s.name, by)
	case waitNumber:
		which, id = unix.P_PID, s.value
	case "pgid":
		which, id = unix.P_PGID, c.number(s.name, by)
		if id == 1 {
			which, id = unix.P_ALL, 0 // as wait4(2), where -1 is any
		}
	}
	result, err := k.call(by, orderWait, which, id, int(s.flags))
	info := &k.board[by.slot].info
	switch {
	case err != nil || result < 0:
		return outcome(result), err
	case result == 1:
		return "blocks", nil
	case info[0] == 0:
		return "none", nil
	}
	if err := k.emptied(c); err != nil {
		return "", err
	}
	how := map[int32]string{1: "exited", 2: "killed", 3: "dumped"}[info[1]]
	return fmt.Sprint(info[0], " ", how, " ", info[2]), nil
}

// kill waits for the end of a group that the signal ends, and answers "ok" for a
// caller that does not survive it.
func (k *kernel) kill(s *step, by *actor, c *cast) (string, error) {
	nr := c.number(s.name, by)
	victim := c.victim(s, by, nr)
	if victim == nil || victim != by.leader {
		result, err := k.call(by, orderKill, nr, s.value)
		if err != nil || result < 0 || victim == nil {
			return outcome(result), err
		}
	} else {
		k.post(by.slot, orderKill, nr, s.value)
	}
	return "ok", k.settle(c, victim, nil)
}

// victim is the leader of the group that a signal ends, nil if it ends none: the
// reaper of a namespace does not hear those inside it, nor anybody's SIGTERM.
func (c *cast) victim(s *step, by *actor, nr int) *actor {
	if s.value == 0 {
		return nil
	}
	for _, a := range c.order {
		l := a.leader
		if a.number(by.space) != nr || a.dead && (a != l || !c.anyLeft(l)) {
			continue
		}
		if l.number(l.space) == 1 && (l.space == by.space || s.value != int(unix.SIGKILL)) {
			return nil
		}
		return l
	}
	return nil
}

// mounted is the device number of the superblock.
func (k *kernel) mounted(*actor) any { return k.dev }

// ended: the kernel knows by itself.
func (k *kernel) ended(*actor) {}

// held: the order that made the vfork is not answered yet.
func (k *kernel) held(a *actor) bool {
	s := &k.board[a.slot]
	return atomic.LoadUint32(&s.reply) != atomic.LoadUint32(&s.order)
}

func (k *kernel) unblock(a *actor) error {
	s := &k.board[a.slot]
	for k.held(a) {
		if err := k.await(&s.reply, atomic.LoadUint32(&s.order)-1, nil); err != nil {
			return err
		}
	}
	return nil
}
