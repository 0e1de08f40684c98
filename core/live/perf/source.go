package perf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/kpidd/kpidd/core/live"
	"golang.org/x/sys/unix"
)

const (
	ringBytesDefault = 2 << 20 // 37,000 records: half a second of the fastest storm seen
	ringBytesMax     = 1 << 30
)

// Options of a Source. The zero value asks for the defaults.
type Options struct {
	// RingBytes is the size of each CPU's ring in bytes, rounded up to a power
	// of two of pages. 0 is 2 MiB; at most 1 GiB.
	RingBytes int
}

// Source is a live.Source on the task records of perf events. Wake may be
// called by any goroutine, also after Close; everything else belongs to one.
type Source struct {
	merge  merge
	poller *poller
	info   live.Info

	ringBytes int
	uevents   int       // socket that tells of CPUs coming and going, or -1
	checked   time.Time // when the list of CPUs was last read
	recheck   bool      // CPUs may have come or gone

	inRound bool
	settled int          // rings settled in this round
	blind   []live.Event // to be delivered first in this round
	past    []RingLoss   // of rings that are closed
	err     error        // why the source is dead
}

var _ live.Source = (*Source)(nil)

// Open maps a ring on every online CPU. Records are kept from then on. Its
// error says in one line what is missing and how to get it; a *MissingError is
// in its chain where the kernel lacks a feature.
func Open(o Options) (*Source, error) {
	ringBytes, err := dataBytes(o.RingBytes)
	if err != nil {
		return nil, err
	}
	poller, err := newPoller()
	if err != nil {
		return nil, err
	}
	s := &Source{poller: poller, ringBytes: ringBytes, uevents: -1}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Source) open() error {
	// The socket first: a CPU that changes after the list was read is told.
	// Without the socket the list is read again from time to time.
	if fd, err := openUevents(); err == nil {
		s.uevents = fd
		if err := s.poller.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	if err := s.openRings(); err != nil {
		return err
	}
	if len(s.merge.rings) == 0 {
		return errors.New("open perf events: no cpu is online")
	}
	s.blind = s.blind[:0] // nothing was to be seen before Open
	s.info = live.Info{
		Name:     "perf",
		LossKind: "exact",
		Tells:    live.TellsExecComm | live.TellsComm,
		RingSize: int64(s.ringBytes) * int64(len(s.merge.rings)),
	}
	return nil
}

// Info describes the source. RingSize is that of the CPUs online at Open.
func (s *Source) Info() live.Info { return s.info }

// Wait returns when a ring is half full, when CPUs have come or gone, when
// timeout has passed, or after Wake. Records short of half a ring wake nobody:
// drain on a tick.
func (s *Source) Wait(timeout time.Duration) error {
	if s.err != nil {
		return s.err
	}
	start := time.Now()
	if s.uevents < 0 {
		timeout = min(timeout, recheckEvery)
		s.recheck = s.recheck || start.Sub(s.checked) >= recheckEvery
	}
	if s.recheck {
		return nil
	}
	for left := timeout; ; left = timeout - time.Since(start) {
		ready, err := s.waitOnce(max(left, 0))
		if err != nil {
			s.err = err
		}
		if ready || err != nil || left <= 0 {
			return err
		}
	}
}

// waitOnce sleeps once and reports whether there is something to do.
func (s *Source) waitOnce(timeout time.Duration) (ready bool, err error) {
	events, err := s.poller.wait(timeout)
	if err != nil {
		return false, err
	}
	for i := range events {
		switch int(events[i].Fd) {
		case s.poller.wakefd:
			s.poller.clearWake()
			ready = true
		case s.uevents:
			changed, err := readUevents(s.uevents)
			if err != nil {
				return false, err
			}
			s.recheck = s.recheck || changed
			ready = ready || changed
		default:
			ready = true
		}
	}
	return ready, nil
}

// Wake makes a running or the next Wait return at once.
func (s *Source) Wake() { s.poller.wake() }

// Drain fills buf with the next events. A round begins with the first call and
// ends with the call that returns more == false: by then everything stamped
// before the round and committed has been delivered, in the order of cause and
// effect, and the losses that the kernel had counted. Times may step back from
// one round to the next (merge.go). The n events are valid also beside an
// error, after which the source is dead. Without a change of CPUs it allocates
// nothing.
func (s *Source) Drain(buf []live.Event) (n int, more bool, err error) {
	if s.err == nil && !s.inRound {
		s.err = s.begin()
	}
	if s.err != nil {
		return 0, false, s.err
	}
	n = copy(buf, s.blind)
	s.blind = s.blind[:copy(s.blind, s.blind[n:])]

	k, err := s.merge.drain(buf[n:])
	n += k
	if err == nil && n < len(buf) {
		k, err = s.settle(buf[n:])
		n += k
	}
	s.err = err
	return n, s.inRound && err == nil, err
}

// begin starts a round: clock first, then the heads.
func (s *Source) begin() error {
	if s.recheck {
		if err := s.followCPUs(); err != nil {
			return err
		}
	}
	cut, err := nowNs() // C
	if err != nil {
		return err
	}
	s.inRound, s.settled = true, 0
	return s.merge.begin(cut)
}

// settle ends a round whose records are all delivered, unless buf is too small
// for what is left: losses told by no record, of rings that were almost full
// and of those whose CPU is gone.
func (s *Source) settle(buf []live.Event) (n int, err error) {
	for ; s.settled < len(s.merge.rings); s.settled++ {
		r := s.merge.rings[s.settled]
		if !r.full && !(r.gone && r.empty()) {
			continue
		}
		if n == len(buf) {
			return n, nil
		}
		now, err := nowNs()
		if err != nil {
			return n, err
		}
		if ev, tell := r.settle(now); tell {
			buf[n] = ev
			n++
		}
		r.full = false
	}
	s.inRound = false
	if slices.ContainsFunc(s.merge.rings, func(r *ring) bool { return r.gone }) {
		return n, s.retire()
	}
	return n, nil
}

// followCPUs marks the rings of CPUs that went offline and opens one on each
// CPU that came online. A CPU has one ring at a time: one that went and came
// back gets its new ring after the old one was emptied.
func (s *Source) followCPUs() error {
	s.recheck = false
	for _, r := range s.merge.rings {
		r.gone = r.gone || !r.alive()
	}
	return s.openRings()
}

// openRings opens a ring on each online CPU that has none, and notes for each
// that what ran there until now could not be seen.
func (s *Source) openRings() error {
	s.checked = time.Now()
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	rings := slices.Clone(s.merge.rings)
	// Also beside an error: Close must find what is open.
	defer func() { s.merge.setRings(rings) }()
	for _, cpu := range cpus {
		if slices.ContainsFunc(rings, func(r *ring) bool { return r.cpu == cpu }) {
			continue
		}
		r, err := openRing(cpu, s.ringBytes)
		if errors.Is(err, unix.ENODEV) {
			continue // offline again: its return will be told
		}
		if err != nil {
			return err
		}
		rings = append(rings, r)
		// Edge-triggered: one wake-up per half ring, none for a CPU gone.
		if err := s.poller.add(r.fd, unix.EPOLLIN|unix.EPOLLET); err != nil {
			return err
		}
		now, err := nowNs()
		if err != nil {
			return err
		}
		s.blind = append(s.blind, live.Event{Kind: live.Blind, TimeNs: now})
	}
	return nil
}

// retire closes the rings of CPUs that are gone, once they are empty. Their
// CPUs may be back: the list is read again.
func (s *Source) retire() error {
	var rings []*ring
	var errs error
	for _, r := range s.merge.rings {
		if !r.gone || !r.empty() {
			rings = append(rings, r)
			continue
		}
		s.past = addLoss(s.past, r.loss())
		errs = errors.Join(errs, r.close())
	}
	s.merge.setRings(rings)
	s.recheck = true
	return errs
}

// Close releases everything. Records not yet drained are gone.
func (s *Source) Close() error {
	if errors.Is(s.err, os.ErrClosed) {
		return s.err
	}
	s.err = fmt.Errorf("perf source: %w", os.ErrClosed)
	var errs error
	for _, r := range s.merge.rings {
		errs = errors.Join(errs, r.close())
	}
	s.merge.setRings(nil)
	if s.uevents >= 0 {
		errs = errors.Join(errs, unix.Close(s.uevents))
	}
	return errors.Join(errs, s.poller.close())
}

// nowNs reads CLOCK_MONOTONIC, by a system call: no load that follows can be
// executed ahead of it.
func nowNs() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return uint64(ts.Nano()), nil
}
