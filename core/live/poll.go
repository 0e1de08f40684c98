package live

import "time"

// PollSource tells nothing: with it the follower compares the table with /proc
// at intervals. It opens everywhere and misses whatever lives shorter.
type PollSource struct{ wake chan struct{} }

// NewPoll returns a PollSource.
func NewPoll() *PollSource { return &PollSource{wake: make(chan struct{}, 1)} }

// Info implements Source.
func (*PollSource) Info() Info {
	return Info{Name: "poll", LossKind: "blind", Poll: true, Tells: TellsParent}
}

// Wait implements Source.
func (p *PollSource) Wait(timeout time.Duration) error {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.wake:
	}
	return nil
}

// Drain implements Source.
func (*PollSource) Drain([]Event) (int, bool, error) { return 0, false, nil }

// Wake implements Source.
func (p *PollSource) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close implements Source.
func (*PollSource) Close() error { return nil }
