// Package scheduler runs pulls on their schedules: never two runs of one pull in
// one process, with jitter after an outage, until it is told to stop.
package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule says when a pull runs.
type Schedule struct {
	text string
	cron cron.Schedule
}

// parser reads five fields and the descriptors.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads a schedule: five cron fields ("*/5 * * * *"), a descriptor
// ("@hourly"), or "@every 30s". Fields are in the time zone given by name ("" is
// the machine's), or by a prefix ("CRON_TZ=Europe/Berlin 0 6 * * *"). What never
// comes, such as 30 February, is an error, as is an interval of a fraction of a
// second, which cron would round without a word.
func Parse(text, zone string) (*Schedule, error) {
	fail := func(err error) (*Schedule, error) { return nil, fmt.Errorf("schedule %q: %w", text, err) }
	spec := strings.TrimSpace(text)
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		rest, ok := strings.CutPrefix(spec, prefix)
		if !ok {
			continue
		}
		if zone != "" {
			return fail(errors.New("the time zone is given twice"))
		}
		// cron panics where nothing follows the zone.
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			return fail(errors.New("after the time zone there is no schedule"))
		}
		if zone, spec = rest[:end], strings.TrimSpace(rest[end:]); zone == "" {
			return fail(fmt.Errorf("after %s there is no time zone", prefix))
		}
		break
	}
	if zone != "" {
		if _, err := time.LoadLocation(zone); err != nil {
			return fail(fmt.Errorf("unknown time zone %q", zone))
		}
	}
	if every, ok := strings.CutPrefix(spec, "@every"); ok {
		d, err := time.ParseDuration(strings.TrimSpace(every))
		if err != nil {
			return fail(errors.New("after @every comes a duration such as 30s or 5m"))
		}
		if d < time.Second || d%time.Second != 0 {
			return fail(errors.New("an interval is a whole number of seconds, one at least"))
		}
		return &Schedule{text: text, cron: cron.Every(d)}, nil
	}
	if strings.HasPrefix(spec, "CRON_TZ=") || strings.HasPrefix(spec, "TZ=") {
		return fail(errors.New("the time zone is given twice"))
	}
	if zone != "" {
		spec = "CRON_TZ=" + zone + " " + spec
	}
	s, err := parser.Parse(spec)
	if err != nil {
		return fail(err)
	}
	if s.Next(time.Now()).IsZero() {
		return fail(errors.New("it never comes"))
	}
	return &Schedule{text: text, cron: s}, nil
}

// Next is the first time after t, zero if there is none within five years.
func (s *Schedule) Next(t time.Time) time.Time { return s.cron.Next(t) }

// String is the schedule as it was written.
func (s *Schedule) String() string { return s.text }
