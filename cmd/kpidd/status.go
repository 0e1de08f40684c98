package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/core/serve"
	"github.com/kpidd/kpidd/core/table"
	"github.com/spf13/cobra"
)

// statusReport is the JSON object of /v1/status and kpidd status. Keys of parts
// that are not built yet are absent.
type statusReport struct {
	Version             string            `json:"version"`
	BootID              string            `json:"boot_id"`
	Source              string            `json:"source"`
	SourcesRefused      map[string]string `json:"sources_refused,omitempty"`
	LossKind            string            `json:"loss_kind"`
	Events              uint64            `json:"events"`
	Lost                uint64            `json:"lost"`
	Gaps                uint64            `json:"gaps"`
	Resyncs             uint64            `json:"resyncs"`
	Repaired            uint64            `json:"repaired"`
	StaleSince          *float64          `json:"stale_since"` // seconds of CLOCK_MONOTONIC; null while exact
	Processes           uint64            `json:"processes"`
	Threads             uint64            `json:"threads"`
	Zombies             int               `json:"zombies"`
	Unverified          int               `json:"unverified"`
	TableFull           bool              `json:"table_full"`
	TableBytes          uint64            `json:"table_bytes"`
	RingBytes           int64             `json:"ring_bytes"`
	RSSBytes            int64             `json:"rss_bytes"`
	UptimeS             float64           `json:"uptime_s"`
	Wakeups             uint64            `json:"wakeups"`
	NsPerEvent          uint64            `json:"ns_per_event"`
	SnapshotNs          uint64            `json:"snapshot_ns"`
	InvariantViolations uint64            `json:"invariant_violations"`
	Mechanisms          mechanisms        `json:"mechanisms"`
}

type mechanisms struct {
	M1 m1Report `json:"m1"`
}

type m1Report struct {
	Tagged    uint64 `json:"tagged"`
	StaleTags uint64 `json:"stale_tags"`
	Searches  uint64 `json:"searches"`
}

// status appends the report; called by the server's goroutines.
func (d *daemon) status(dst []byte) []byte {
	h, info, m, m1 := d.table.Header(), d.source.Info(), d.follower.Metrics(), d.engine.Namespace().Stats()
	r := statusReport{
		Version: versionString(), BootID: d.bootID, Source: info.Name, LossKind: info.LossKind,
		Events: atomic.LoadUint64(&h.Events), Lost: atomic.LoadUint64(&h.Lost),
		Gaps: atomic.LoadUint64(&h.Gaps), Resyncs: atomic.LoadUint64(&h.Resyncs),
		Repaired:  d.engine.Stats().Repaired.Load(),
		Processes: atomic.LoadUint64(&h.Processes), Threads: atomic.LoadUint64(&h.Tasks),
		Zombies: d.engine.Zombies(), Unverified: d.engine.Unverified(),
		TableFull: atomic.LoadUint32(&h.Full) != 0, TableBytes: d.table.Bytes(),
		RingBytes: info.RingSize, RSSBytes: residentBytes(), UptimeS: time.Since(d.start).Seconds(),
		Wakeups: m.Wakeups.Load(), SnapshotNs: m.SnapNs.Load(), InvariantViolations: m1.Violations,
		Mechanisms: mechanisms{m1Report{m1.Tagged, m1.StaleTags, m1.Searches}},
	}
	if n := m.Events.Load(); n > 0 {
		r.NsPerEvent = m.BusyNs.Load() / n
	}
	if t := atomic.LoadUint64(&h.StaleSinceNs); t != 0 {
		s := float64(t) / 1e9
		r.StaleSince = &s
	}
	for _, refused := range d.refused {
		if r.SourcesRefused == nil {
			r.SourcesRefused = map[string]string{}
		}
		r.SourcesRefused[refused.Name] = refused.Err.Error()
	}
	b, err := json.Marshal(&r)
	if err != nil {
		panic(err) // the type has no value that JSON lacks
	}
	return append(dst, b...)
}

// residentBytes is the resident memory of this process, the shared table and
// rings included.
func residentBytes() int64 {
	var size, resident int64
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fmt.Sscan(string(b), &size, &resident)
	return resident * int64(os.Getpagesize())
}

func newStatus(opts *options) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Print the state of the daemon as a JSON object", Args: cobra.NoArgs,
		Long: "Print the state of the daemon as a JSON object: on a terminal indented, else,\nor with --json, on one line.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			client, err := dial(ctx, opts)
			if err != nil {
				return cannot(err)
			}
			defer client.Close()
			raw, err := client.Status(ctx)
			if err != nil {
				return cannot(err)
			}
			var b bytes.Buffer
			if out := cmd.OutOrStdout(); !asJSON && out == os.Stdout && isTerminal(os.Stdout) {
				err = json.Indent(&b, raw, "", "  ")
			} else {
				err = json.Compact(&b, raw)
			}
			if err != nil {
				return cannot(err)
			}
			b.WriteByte('\n')
			if _, err = b.WriteTo(cmd.OutOrStdout()); err != nil {
				return cannot(err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one line, also on a terminal")
	return c
}

// readerDirs are the directories in which a client looks for a daemon.
func readerDirs(opts *options) []string {
	if opts.runtimeDir != "" {
		return []string{opts.runtimeDir}
	}
	return table.ReaderDirs(os.Geteuid())
}

func dial(ctx context.Context, opts *options) (*serve.Client, error) {
	dirs := readerDirs(opts)
	var passed error // a socket that is not for us, of several directories
	for _, dir := range dirs {
		client, err := serve.Dial(ctx, filepath.Join(dir, table.SocketName))
		switch {
		case errors.Is(err, serve.ErrNoDaemon):
		case len(dirs) > 1 && (errors.Is(err, serve.ErrForeign) || errors.Is(err, serve.ErrPermission)):
			passed = err
		default:
			return client, err
		}
	}
	if passed != nil {
		return nil, fmt.Errorf("%w: %w", serve.ErrNoDaemon, passed)
	}
	return nil, fmt.Errorf("%w in %v; start one with: kpidd run", serve.ErrNoDaemon, dirs)
}
