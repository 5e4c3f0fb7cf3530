package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
	"github.com/weir-cdc/weir/puller"
	"github.com/weir-cdc/weir/scheduler"
)

func runCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run every pull on its schedule, until SIGTERM",
		Long: `Run every pull on its schedule. Source and targets may be down at the start and at
any time: what cannot be reached is tried again, and nothing is lost. Any number
of weir run may share one queue, on any number of machines.
SIGTERM and Ctrl-C stop it after the batches in hand, a second one at once.`,
		Example: `  weir run
  weir run --config /etc/weir.yaml --log-format json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), c)
		},
	}
}

func (a *app) run(ctx context.Context, c *config.Config) (err error) {
	if len(c.Pulls) == 0 {
		return c.Fault("pulls", errors.New("there is none to run"), "a name and a target under pulls")
	}
	a.doubt(c)
	source := &opener[dialects.Source]{open: func(ctx context.Context) (dialects.Source, error) { return openSource(ctx, c) }}
	defer func() { err = errors.Join(err, source.close()) }()
	// What no retry can put right is said now; what is only down is not.
	if _, err := source.get(ctx); refused(err) {
		return err
	}
	var jobs []scheduler.Job
	for i := range c.Pulls {
		s, err := schedule(&c.Pulls[i])
		if err != nil {
			return err // load has checked it
		}
		l := &lane{app: a, config: c, place: i, source: source}
		l.target.open = func(ctx context.Context) (weir.Target, error) { return openTarget(ctx, c, i) }
		defer func() { err = errors.Join(err, l.target.close()) }()
		if _, err := l.target.get(ctx); refused(err) {
			return err
		}
		jobs = append(jobs, scheduler.Job{Name: c.Pulls[i].Name, Schedule: s, Run: l.run, Fold: l.fold})
	}
	a.log.Info("running", "pulls", len(jobs), "source", c.Source.URL)
	stopping := sync.OnceFunc(func() { a.log.Info("stopping after the batches in hand") })
	defer context.AfterFunc(ctx, stopping)()
	scheduler.Run(ctx, jobs, a.log)
	stopping() // AfterFunc may come later
	a.log.Info("stopped")
	return nil
}

// refused reports an error that a person must act on.
func refused(err error) bool {
	var wrong *weir.ConfigError
	return errors.As(err, &wrong)
}

// schedule is when a pull runs. The machine's time zone has no say.
func schedule(p *config.Pull) (*scheduler.Schedule, error) {
	zone := p.TimeZone
	if zone == "" && !strings.HasPrefix(strings.TrimSpace(p.Schedule), "CRON_TZ=") {
		zone = "UTC"
	}
	return scheduler.Parse(p.Schedule, zone)
}

// lane is one pull of weir run.
type lane struct {
	app    *app
	config *config.Config
	place  int
	source *opener[dialects.Source]
	target opener[weir.Target]
	puller *puller.Puller // nil until source and target have been had once
}

// run drains the queue. The scheduler never calls it twice at a time.
func (l *lane) run(ctx context.Context) (puller.Result, error) {
	s, err := l.source.get(ctx)
	if err != nil {
		return puller.Result{}, err
	}
	t, err := l.target.get(ctx)
	if err != nil {
		// The inbox must not grow while the target cannot be opened.
		r, foldErr := puller.FoldOnly(ctx, s)
		return r, errors.Join(err, foldErr)
	}
	if l.puller == nil {
		if l.puller, err = l.app.puller(ctx, l.config, l.place, s, t, false); err != nil {
			return puller.Result{}, fmt.Errorf("begin: %w", err)
		}
	}
	r, err := l.puller.Drain(ctx)
	return r, locate(l.config, l.place, err)
}

// fold keeps the inbox short while the pull waits for its target.
func (l *lane) fold(ctx context.Context) (puller.Result, error) {
	s, err := l.source.get(ctx)
	if err != nil {
		return puller.Result{}, err
	}
	return puller.FoldOnly(ctx, s)
}

// opener opens something when it is first wanted, and again after it failed.
type opener[T interface{ Close() error }] struct {
	open func(context.Context) (T, error)

	mu   sync.Mutex
	have bool
	it   T
}

func (o *opener[T]) get(ctx context.Context) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.have {
		it, err := o.open(ctx)
		if err != nil {
			return it, err
		}
		o.it, o.have = it, true
	}
	return o.it, nil
}

func (o *opener[T]) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.have {
		return nil
	}
	o.have = false
	return o.it.Close()
}
