package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/puller"
	"github.com/weir-cdc/weir/scheduler"
	"github.com/weir-cdc/weir/triggers"
)

func demoCommand(a *app) *cobra.Command {
	var asJSON bool
	var postgresURL string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole line on embedded SQLite, no set-up",
		Long: `demo makes a source with a few related tables, installs captures, backfills, and
lets an application write while a puller runs on schedule. It takes the target
away, brings it back, and compares both sides row for row.

On SQLite the databases are files in a temporary directory; with --postgres they
are schemas of that database. Both are removed.`,
		Example: `  weir demo
  weir demo --json
  weir demo --postgres postgres://localhost/postgres`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &demo{out: a.stdout, start: time.Now()}
			if asJSON {
				d.out = io.Discard
			}
			result, err := d.run(cmd.Context(), postgresURL)
			if result != nil && asJSON {
				err = errors.Join(err, writeJSONLine(a.stdout, result))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object at the end, and nothing else")
	cmd.Flags().StringVar(&postgresURL, "postgres", "", "run against this PostgreSQL server")
	return cmd
}

// How long each part of the demo goes on.
const (
	demoBefore = 2500 * time.Millisecond
	demoOutage = 7 * time.Second
	demoAfter  = 2000 * time.Millisecond
	demoDrain  = 30 * time.Second
)

// run shows the line. It returns what it did even where both sides differ,
// which is an error.
func (d *demo) run(ctx context.Context, postgresURL string) (result *demoResult, err error) {
	cleanup, err := d.open(ctx, postgresURL)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, d.targetDB.Close())
		cleanup()
		err = errors.Join(err, d.app.Close())
	}()
	d.say("source and target are %s databases", d.engine)
	seeded, err := d.seed(ctx)
	if err != nil {
		return nil, err
	}
	d.say("the source has %d tables with %d rows, before weir is there", len(demoTables), seeded)

	if d.source, err = dialects.OpenSource(ctx, d.sourceURL, dialects.SourceOptions{Schema: d.schema}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.source.Close()) }()
	target, err := dialects.OpenTarget(ctx, d.targetURL, d.target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := d.install(ctx); err != nil {
		return nil, err
	}
	if err := d.pullAndWrite(ctx, target); err != nil {
		return nil, err
	}

	r := &demoResult{ChangesCaptured: d.captured.Load(), RowsShipped: d.shipped.Load(), Outages: int(d.outages.Load())}
	if r.SourceRows, r.TargetRows, r.Differences, err = d.compare(ctx); err != nil {
		return nil, err
	}
	status, err := d.source.Status(ctx)
	if err != nil {
		return nil, err
	}
	r.Queue = status.Inbox
	for _, q := range status.Queues {
		r.Queue += q.Depth
	}
	r.Seconds = time.Since(d.start).Seconds()
	d.say("source %d rows, target %d rows, %d differ; %d changes are left in the queue", r.SourceRows, r.TargetRows, r.Differences, r.Queue)
	if r.Differences != 0 || r.Queue != 0 {
		return r, errors.New("demo: source and target are not equal")
	}
	d.say("equal: %d row changes were captured, %d rows were shipped", r.ChangesCaptured, r.RowsShipped)
	return r, nil
}

func (d *demo) install(ctx context.Context) error {
	if _, err := d.source.Init(ctx); err != nil {
		return err
	}
	plan, wanted, err := triggers.PlanFor(ctx, d.source, d.specs())
	if err != nil {
		return err
	}
	if err := triggers.Apply(ctx, d.source, plan, nil); err != nil {
		return err
	}
	d.say("weir's tables are made, and triggers are on %d tables", len(wanted))
	for _, w := range wanted {
		at, err := puller.Backfill(ctx, d.source, w.Capture.ID, 500, false, nil)
		if err != nil {
			return err
		}
		d.say("backfill of %s tagged %d rows", w.Capture.Table.Name, at.Tagged)
	}
	return nil
}

// pullAndWrite runs the scheduler beside the application's writes, through an
// outage of the target, until the queue is empty.
func (d *demo) pullAndWrite(ctx context.Context, target weir.Target) error {
	p, err := puller.New(d.source, target, puller.Config{Name: "demo", Batch: 500}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	schedule, err := scheduler.Parse("@every 1s", "")
	if err != nil {
		return err
	}
	scheduling, stopScheduler := context.WithCancel(ctx)
	defer stopScheduler()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		scheduler.Run(scheduling, []scheduler.Job{{Name: "demo", Schedule: schedule, Run: func(ctx context.Context) (puller.Result, error) {
			r, err := p.Drain(ctx)
			d.tell(r, err)
			return r, err
		}}}, slog.New(slog.DiscardHandler))
	}()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	written := make(chan error, 1)
	go func() { written <- d.workload(writing, 3) }()
	d.say("an application inserts, updates, changes keys, deletes and rolls back; a puller runs every second")

	if err := pause(ctx, demoBefore); err != nil {
		return err
	}
	giveBack, err := d.takeAway(ctx)
	if err != nil {
		return err
	}
	d.say("the target is taken away: another session holds it. The application goes on")
	perr := pause(ctx, demoOutage)
	if err := errors.Join(perr, giveBack()); err != nil {
		return err
	}
	d.say("the target is back")
	if err := pause(ctx, demoAfter); err != nil {
		return err
	}
	stopWriting()
	if err := <-written; err != nil {
		return err
	}
	d.say("the application has stopped after %d row changes", d.captured.Load())
	stopScheduler()
	<-stopped
	return d.drain(ctx, p)
}

// drain pulls until nothing is left.
func (d *demo) drain(ctx context.Context, p *puller.Puller) error {
	ctx, cancel := context.WithTimeout(ctx, demoDrain)
	defer cancel()
	for ctx.Err() == nil {
		r, err := p.Drain(ctx)
		d.tell(r, err)
		var u *weir.UnavailableError
		if err != nil && !errors.As(err, &u) {
			return err
		}
		status, err := d.source.Status(ctx)
		if err != nil {
			return err
		}
		left := status.Inbox
		for _, q := range status.Queues {
			left += q.Depth
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// tell counts a run, and shows it.
func (d *demo) tell(r puller.Result, err error) {
	d.shipped.Add(int64(r.Upserted + r.Deleted))
	switch {
	case err != nil:
		d.outages.Add(1)
		d.say("pull: %v", err)
	case r.Pulls > 0:
		d.say("pull: %d rows and %d deletes shipped in %v", r.Upserted, r.Deleted, r.Duration.Round(time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("demo: stopped: %w", ctx.Err())
	}
}
