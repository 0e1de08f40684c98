package main

import (
	"context"
	"errors"
	"os/signal"
	"strconv"
	"strings"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/live/netlink"
	"github.com/kpidd/kpidd/core/live/perf"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// runConfig is what kpidd run was asked for.
type runConfig struct {
	*options
	source    string
	ringBytes byteSize
}

func newRun(opts *options) *cobra.Command {
	cfg := runConfig{options: opts}
	c := &cobra.Command{
		Use: "run", Short: "Run the daemon in the foreground",
		Long: `Run the daemon in the foreground until SIGTERM or Ctrl-C.

The source of events is the best that opens, in this order:
  perf     records of the perf subsystem; needs CAP_PERFMON
  netlink  the proc connector; needs no capability in the initial namespaces
  poll     /proc once a second; opens everywhere, misses short-lived processes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends it at once
			return runDaemon(ctx, &cfg)
		},
	}
	c.Flags().StringVar(&cfg.source, "source", "auto", "auto, perf, netlink or poll")
	c.Flags().Var(&cfg.ringBytes, "ring-bytes", "kernel buffer: of each CPU's ring under perf (default 2M), of the socket under netlink (default 32M)")
	return c
}

// wrapSource is a hook of the tests; nil else.
var wrapSource func(live.Source) live.Source

// openSource opens the source that was asked for. refused says why better ones
// could not be had.
func openSource(cfg *runConfig) (src live.Source, refused []live.Refusal, err error) {
	name := cfg.source
	if name == "auto" {
		name = ""
	}
	src, refused, err = live.Choose([]live.Opener{
		{Name: "perf", Open: func() (live.Source, error) {
			return opened(perf.Open(perf.Options{RingBytes: int(cfg.ringBytes)}))
		}},
		{Name: "netlink", Open: func() (live.Source, error) {
			return opened(netlink.Open(netlink.Options{RecvBuf: int(cfg.ringBytes)}))
		}},
		{Name: "poll", Open: func() (live.Source, error) { return live.NewPoll(), nil }},
	}, name)
	if err == nil && wrapSource != nil {
		src = wrapSource(src)
	}
	return src, refused, err
}

// opened keeps a nil pointer from becoming a Source that is not nil.
func opened[S live.Source](s S, err error) (live.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// byteSize is a flag in bytes, with K, M or G for the powers of 1,024.
type byteSize int64

const byteSizeMax = 1 << 30

func (b *byteSize) Type() string   { return "BYTES" }
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

func (b *byteSize) Set(s string) error {
	digits := strings.TrimRight(s, "KMGkmg")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[strings.ToUpper(s[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n <= 0 || n > byteSizeMax>>shift {
		return errors.New("want a size from 1 byte to 1G, as 4096, 512K or 2M")
	}
	*b = byteSize(n << shift)
	return nil
}
