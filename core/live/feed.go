package live

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/generated/seqlock"
)

// FeedSize is the number of records that the daemon's feed keeps: a reader may
// fall this far behind before it loses any.
const FeedSize = 1 << 16

// ErrFeedClosed is returned by Feed.Wait once the feed is closed and all its
// records lie at or before the place asked for.
var ErrFeedClosed = errors.New("feed is closed")

// RecordType is what a Record tells.
type RecordType uint8

// The types of Record.
const (
	RecFork   RecordType = iota + 1 // TID was created; a process where TID == PID, else a thread
	RecExec                         // process PID runs a new program
	RecExit                         // TID has exited
	RecComm                         // TID was renamed without an exec
	RecGap                          // events were lost here before they reached the table
	RecResync                       // the table is whole again after a gap
)

// Record is one event as it was applied to the table, with the identity that
// the table gave the task. It holds no pointers; its size is one payload of a
// seqlock.Rec64.
type Record struct {
	Seq        uint64     // assigned by Publish: 1, 2, 3 and so on
	TimeNs     uint64     // CLOCK_MONOTONIC
	StartTicks uint64     // start of task TID, as field 22 of its stat file; RecGap: see Lost
	PID        uint32     // thread group; 0 in RecGap and RecResync
	TID        uint32     // the task; 0 in RecGap and RecResync
	PPID       uint32     // RecFork: parent of the new process or of the new thread's group
	Type       RecordType // RecFork and so on
	Flags      EventFlags // HasCode, HasComm, RealParent
	Code       uint16     // RecExit: status as wait(2) encodes it, where HasCode is set
	Comm       [16]byte   // name after the event; NUL-padded
}

const recordWords = 7

// A Record and the payload of a seqlock.Rec64 have the same size.
var _ [recordWords * 8]byte = [unsafe.Sizeof(Record{})]byte{}

// GapRecord returns the record of a loss of lost events; 0 means that their
// number is not known.
func GapRecord(timeNs, lost uint64) Record {
	return Record{TimeNs: timeNs, Type: RecGap, StartTicks: lost}
}

// Lost returns how many events a RecGap stands for, 0 where that is not known
// and for every other type.
func (r *Record) Lost() uint64 {
	if r.Type != RecGap {
		return 0
	}
	return r.StartTicks
}

func (r *Record) words() *[recordWords]uint64 {
	return (*[recordWords]uint64)(unsafe.Pointer(r))
}

// Feed broadcasts the published records from one writer to any number of
// readers. Memory is bounded and the writer never waits: a reader that falls
// behind by more than the ring holds loses the oldest records and is told how
// many. Make one with NewFeed; the zero value is not usable and a Feed must not
// be copied.
//
// Invariants:
//
//	I1  Record s lies in ring[s mod size], from its publication until record
//	    s+size is written there.
//	I2  last is the Seq of the newest published record: when last >= s has been
//	    seen, the write of record s is complete.
//	I3  Seq grows by one from record to record.
//	I4  A waiter that sleeps on the channel c has set asleep after it loaded c.
//
// Access: ring and mask are immutable (the records in ring are seqlocks). last
// is atomic, stored by the writer alone, as are the records. asleep, wake and
// closed are atomic and stored by anybody. Publish and Flush belong to one
// goroutine at a time; every other method may be called by any.
//
// Ordering:
//
//	(A) Publish stores last after the record; Next loads last before it. So a
//	    reader never looks at a slot that was not written yet (I2).
//	(B) The record's own seqlock: a copy that an overwriting Publish has touched
//	    is refused. A copy that is whole but of a later round shows itself by a
//	    Seq other than the one asked for (I1, I3). A refused copy at s <= last
//	    can only mean that record s+size or a later one is being written,
//	    because the write of s is complete (I2). Either way record s is gone, so
//	    there is nothing to try again.
//	(C) Wait stores asleep, then loads last; Flush follows a store of last and
//	    then loads asleep. Both are sequentially consistent, so at least one of
//	    the two sees the other's store and no wake-up is lost. Flush clears
//	    asleep before it takes the channel away: a waiter that set asleep
//	    earlier loaded the channel earlier (I4) and is woken by its close; one
//	    that sets it later is seen by the next Flush.
//
// A racing reader may see last a little late, and learn of records only with
// its next call. It never sees a torn record, a record twice, or records out of
// order, and received plus missed always add up to its place in the stream.
//
// Lifetime: records are copied out; a reader keeps nothing of the feed. The
// ring lives as long as the Feed.
//
// Progress: Publish and Flush are wait-free (Flush allocates one channel when
// somebody slept). Next is wait-free: it looks at each slot at most once. Wait
// blocks.
//
// Source: the bounded broadcast ring with overrun detection, as in the kernel's
// /dev/kmsg and in the LMAX Disruptor's sequences; the seqlock is Lameter,
// "Effective synchronization on Linux/NUMA systems", 2005.
type Feed struct {
	ring []seqlock.Rec64
	mask uint64

	_    arch.Pad
	last atomic.Uint64 // stored by the writer with each record
	_    arch.Pad

	asleep atomic.Bool // stored by waiters
	closed atomic.Bool
	wake   atomic.Pointer[chan struct{}]
}

// NewFeed returns an empty feed that keeps the last size records, rounded up to
// a power of two.
func NewFeed(size int) *Feed {
	n := uint64(1) << bits.Len64(uint64(max(size, 2)-1))
	f := &Feed{ring: make([]seqlock.Rec64, n), mask: n - 1}
	c := make(chan struct{})
	f.wake.Store(&c)
	return f
}

// Publish appends r and sets r.Seq. Sleeping readers stay asleep until Flush.
// Only the writer may call it.
func (f *Feed) Publish(r *Record) {
	r.Seq = f.last.Load() + 1
	f.ring[r.Seq&f.mask].Write(r.words())
	f.last.Store(r.Seq) // (A)
}

// Flush wakes the readers that wait for records published so far. It costs one
// load when none does. Only the writer may call it, once per batch.
func (f *Feed) Flush() {
	if f.asleep.Load() { // (C)
		f.wakeSlow()
	}
}

//go:noinline
func (f *Feed) wakeSlow() {
	f.asleep.Store(false)
	next := make(chan struct{})
	close(*f.wake.Swap(&next))
}

// Last returns the Seq of the newest record, 0 if there is none.
func (f *Feed) Last() uint64 { return f.last.Load() }

// Next copies the records that follow Seq after into buf, oldest first, and
// returns their number n. missed is how many records between after and the
// first one copied were overwritten before they could be read. The caller's
// next place is after + missed + n. Next does not wait; 0, 0 means that nothing
// newer than after is there.
func (f *Feed) Next(after uint64, buf []Record) (n int, missed uint64) {
	return f.next(after, f.last.Load(), buf) // (A)
}

// next is Next for a caller that has loaded last.
func (f *Feed) next(after, last uint64, buf []Record) (n int, missed uint64) {
	if after >= last || len(buf) == 0 {
		return 0, 0
	}
	seq := max(after+1, f.oldest(last))
	for n < len(buf) && seq <= last {
		r := &buf[n]
		if f.ring[seq&f.mask].TryRead(r.words()) && r.Seq == seq { // (B)
			n++
			seq++
			continue
		}
		if n > 0 {
			break // the next call tells how many are missing here
		}
		seq = max(seq+1, f.oldest(f.last.Load()))
	}
	return n, seq - 1 - after - uint64(n)
}

// oldest returns the Seq of the oldest record that the ring can hold when last
// is the newest.
func (f *Feed) oldest(last uint64) uint64 {
	if last <= f.mask {
		return 1
	}
	return last - f.mask
}

// Wait returns nil as soon as Last is greater than after. Else it returns
// ErrFeedClosed once the feed is closed, or the cause of ctx's end.
func (f *Feed) Wait(ctx context.Context, after uint64) error {
	if f.last.Load() > after {
		return nil // without setting asleep, which would cost the writer a wake-up
	}
	for {
		wake := *f.wake.Load()
		f.asleep.Store(true)       // (C)
		if f.last.Load() > after { // (C)
			return nil
		}
		if f.closed.Load() {
			return ErrFeedClosed
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close tells the readers that no record will follow: each still gets those
// that are there. It follows the last Publish.
func (f *Feed) Close() {
	f.closed.Store(true)
	f.wakeSlow()
}
