package scheduler

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func TestParse(t *testing.T) {
	at := func(s string) time.Time {
		t.Helper()
		out, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct{ text, zone, after, next string }{
		{"*/5 * * * *", "UTC", "2026-03-01T10:01:00Z", "2026-03-01T10:05:00Z"},
		{"  0 6 * * *  ", "UTC", "2026-03-01T10:01:00Z", "2026-03-02T06:00:00Z"},
		{"0 6 * * 1-5", "UTC", "2026-03-06T07:00:00Z", "2026-03-09T06:00:00Z"},
		{"0 0 29 2 *", "UTC", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"@hourly", "UTC", "2026-03-01T10:01:00Z", "2026-03-01T11:00:00Z"},
		{"@every 1s", "", "2026-03-01T10:01:00.5Z", "2026-03-01T10:01:01Z"},
		{"@every  90m", "", "2026-03-01T10:00:00Z", "2026-03-01T11:30:00Z"},
		{"@every 5s", "Europe/Berlin", "2026-03-01T10:00:00Z", "2026-03-01T10:00:05Z"},
		{"CRON_TZ=UTC @every 5s", "", "2026-03-01T10:00:00Z", "2026-03-01T10:00:05Z"},
		{"CRON_TZ=Europe/Berlin 0 6 * * *", "", "2026-01-10T10:00:00Z", "2026-01-11T05:00:00Z"},
		{"CRON_TZ=Europe/Berlin   0 6 * * *", "", "2026-07-10T10:00:00Z", "2026-07-11T04:00:00Z"},
		{"TZ=Asia/Tokyo @daily", "", "2026-07-10T10:00:00Z", "2026-07-10T15:00:00Z"},
		{"CRON_TZ=UTC\t0 6 * * *", "", "2026-07-10T10:00:00Z", "2026-07-11T06:00:00Z"},
		{"0 6 * * *", "America/New_York", "2026-07-10T10:00:00Z", "2026-07-11T10:00:00Z"},
	} {
		s, err := Parse(c.text, c.zone)
		if err != nil {
			t.Error(err)
			continue
		}
		if next := s.Next(at(c.after)); !next.Equal(at(c.next)) {
			t.Errorf("%q in %q after %s: %s, want %s", c.text, c.zone, c.after, next.UTC(), c.next)
		}
		if s.String() != c.text {
			t.Errorf("String is %q, want %q", s, c.text)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, c := range []struct{ text, zone, want string }{
		{"", "", "empty"},
		{"soon", "", "5 fields"},
		{"* * * * * *", "", "5 fields"},
		{"61 * * * *", "", "above maximum"},
		{"*/0 * * * *", "", "step"},
		{"0 0 30 2 *", "UTC", "it never comes"},
		{"0 0 31 4,6,9,11 *", "", "it never comes"},
		{"CRON_TZ=Europe/Berlin 0 0 31 2 *", "", "it never comes"},
		{"@fortnightly", "", "unrecognized descriptor"},
		{"@every", "", "a duration such as"},
		{"@every often", "", "a duration such as"},
		{"@every 500ms", "", "a whole number of seconds"},
		{"@every\t500ms", "", "a whole number of seconds"},
		{"@every 1500ms", "", "a whole number of seconds"},
		{"@every 0s", "", "a whole number of seconds"},
		{"@every -5s", "", "a whole number of seconds"},
		{"CRON_TZ=UTC @every 500ms", "", "a whole number of seconds"},
		{"CRON_TZ=UTC", "", "no schedule"},
		{"CRON_TZ=UTC ", "", "no schedule"},
		{"TZ=UTC", "", "no schedule"},
		{"CRON_TZ=", "", "no schedule"},
		{"CRON_TZ= 0 6 * * *", "", "no time zone"},
		{"CRON_TZ=Mars/Olympus 0 6 * * *", "", `unknown time zone "Mars/Olympus"`},
		{"0 6 * * *", "Mars/Olympus", `unknown time zone "Mars/Olympus"`},
		{"@every 5s", "Mars/Olympus", `unknown time zone "Mars/Olympus"`},
		{"CRON_TZ=UTC 0 6 * * *", "UTC", "given twice"},
		{"CRON_TZ=UTC TZ=UTC", "", "given twice"},
		{"CRON_TZ=UTC CRON_TZ=UTC 0 6 * * *", "", "given twice"},
	} {
		_, err := Parse(c.text, c.zone)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "schedule ") {
			t.Errorf("%q in %q: %v, want %q", c.text, c.zone, err, c.want)
		}
	}
}

// No text makes it panic, and what it takes comes within five years.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"*/5 * * * *", "@every 5s", "CRON_TZ=UTC", "TZ= ", "CRON_TZ=Europe/Berlin 0 6 * * *", "0 0 30 2 *"} {
		f.Add(s, "")
		f.Add(s, "UTC")
	}
	f.Fuzz(func(t *testing.T, text, zone string) {
		s, err := Parse(text, zone)
		if err != nil {
			return
		}
		if now := time.Now(); !s.Next(now).After(now) {
			t.Errorf("after %v comes %v", now, s.Next(now))
		}
	})
}
