package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/serve"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
)

// group is the group whose members see everything through the socket.
const group = "kpidd"

// daemon holds the parts of a running kpidd.
type daemon struct {
	cfg      *runConfig
	start    time.Time
	bootID   string
	source   live.Source
	refused  []live.Refusal
	table    *table.Writer
	engine   *task.Engine
	feed     *live.Feed
	follower *live.Follower
	server   *serve.Server
}

// runDaemon wires the parts together and runs until ctx is done. What it made in
// the runtime directory is gone when it returns.
func runDaemon(ctx context.Context, cfg *runConfig) (err error) {
	d := &daemon{cfg: cfg, start: time.Now()}
	if cfg.hasStatusLine() {
		cfg.stderr = overStatusLine{cfg.stderr}
	}
	path := cfg.runtimeDir
	if path == "" {
		path = table.DefaultDir(os.Geteuid())
	}
	dir, err := table.Hold(path)
	if err != nil {
		return cannot(err)
	}
	defer dir.Release()
	if d.source, d.refused, err = openSource(cfg); err != nil {
		if errors.Is(err, live.ErrUnknownSource) {
			return usage("%w, auto", err)
		}
		return cannot(err)
	}
	defer d.source.Close()

	proc, err := procfile.Open("/proc")
	if err != nil {
		return cannot(err)
	}
	defer proc.Close()
	origin, err := d.origin(proc)
	if err != nil {
		return cannot(err)
	}
	if d.table, err = table.Create(dir, origin); err != nil {
		return cannot(err)
	}
	defer func() { err = errors.Join(err, d.table.Close()) }()
	d.engine = task.New(d.table, uint64(origin.ClockTicks))
	d.feed = live.NewFeed(live.FeedSize)
	defer d.feed.Close()
	if d.server, err = d.listen(filepath.Join(path, table.SocketName)); err != nil {
		return cannot(err)
	}
	d.follower = live.NewFollower(live.Config{
		Source: d.source, Engine: d.engine, Table: d.table, Feed: d.feed, Proc: proc,
		Ready: d.ready, Logf: cfg.note,
	})
	return d.run(ctx)
}

func (d *daemon) origin(proc *procfile.Proc) (o table.Origin, err error) {
	if err := procfile.CheckTimeNamespace(); err != nil {
		return o, err
	}
	if d.bootID, err = proc.BootID(); err != nil {
		return o, err
	}
	hz, err := procfile.ClockTicks()
	if err != nil {
		return o, err
	}
	pid := uint32(os.Getpid())
	var st procfile.Stat
	if err := proc.TaskStat(pid, pid, &st); err != nil {
		return o, err
	}
	info := d.source.Info()
	return table.Origin{
		BootID: d.bootID, PID: pid, StartTicks: st.StartTicks,
		Source: info.Name, Tells: uint64(info.Tells), ClockTicks: hz,
	}, nil
}

func (d *daemon) listen(path string) (*serve.Server, error) {
	return serve.Listen(serve.Config{
		Path: path, Group: group, OwnerUID: uint32(os.Geteuid()),
		Status: d.status,
		Hello: func() serve.Hello {
			return serve.Hello{BootID: d.bootID, Source: d.source.Info().Name, Version: versionString()}
		},
		Feed:     d.feed,
		ErrorLog: log.New(d.cfg.stderr, "kpidd: ", 0),
	})
}

// run serves and follows until ctx is done or one of the two fails.
func (d *daemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := d.server.Serve(); err != nil {
			cancel(fmt.Errorf("serve: %w", err))
		}
	}()
	line := startStatusLine(ctx, d)
	err := d.follower.Run(ctx)
	cancel(nil)
	line.stop()
	stop, done := context.WithTimeout(context.Background(), 2*time.Second)
	defer done()
	d.feed.Close()
	shutdown := d.server.Shutdown(stop)
	<-served
	switch cause := context.Cause(ctx); {
	case err != nil:
		return cannot(err)
	case cause != nil && !errors.Is(cause, context.Canceled):
		return cannot(cause)
	case shutdown != nil:
		return cannot(fmt.Errorf("shut the socket down: %w", shutdown))
	}
	return nil
}

// ready tells once that the table is whole, and what better sources refused.
func (d *daemon) ready() {
	h := d.table.Header()
	d.cfg.note("ready in %d ms: source %s, %d processes, %d threads, table %s",
		time.Since(d.start).Milliseconds(), d.source.Info().Name, h.Processes, h.Tasks, d.table.Path())
	for _, r := range d.refused {
		d.cfg.note("source %s not used: %v", r.Name, r.Err)
	}
}
