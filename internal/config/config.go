// Package config reads weir.yaml: strictly, with the line of every value, so
// that a message can name what is at fault and what would be right.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-cdc/weir"
)

// Config is weir.yaml as it was read and found right. The tags are the truth of
// three things: what the decoder takes, what the JSON Schema says, and the
// defaults.
type Config struct {
	Source   Source    `yaml:"source" need:"true" doc:"The database that changes."`
	Captures []Capture `yaml:"captures" doc:"The tables whose changes are captured."`
	Pulls    []Pull    `yaml:"pulls" doc:"What is pulled, where to, and when."`
	Log      Log       `yaml:"log" doc:"How weir logs. Flags and environment variables go before it."`

	file  string
	lines map[string]int
}

// Source is where changes come from.
type Source struct {
	URL    URL    `yaml:"url" need:"true" doc:"The source. The scheme chooses the dialect: postgres or sqlite. Parts that a postgres URL leaves out come from the PG* environment variables." example:"postgres://user@host/db"`
	Schema string `yaml:"schema" doc:"Where weir's own tables live. Defaults to the dialect's own choice (postgres: weir)."`
}

// Capture is a table whose changes are captured, and what its rows tag.
type Capture struct {
	Table         string       `yaml:"table" need:"true" doc:"The table, as the catalog spells it; quotes or brackets around a part that holds a dot." example:"public.orders"`
	InstanceGUID  string       `yaml:"instance_guid" doc:"The column with the instance's GUID, or for a child table its parent's. Left out for a plain table."`
	ConceptGUID   string       `yaml:"concept_guid" doc:"A column with the concept's GUID, or a fixed GUID. Left out, the table is the concept."`
	OldPrimaryKey string       `yaml:"old_primary_key" doc:"A column whose text goes to the queue's OldPrimaryKey. Instance tables only."`
	ChangeType    string       `yaml:"change_type" doc:"Makes the table a child: the change type, of at most 40 characters, that its rows tag on their parent."`
	Tagging       weir.Tagging `yaml:"tagging" enum:"at once|deferred" doc:"When changes are coalesced: in the user's transaction, or later by the puller. Defaults to at once; to deferred where a row tags something wider than itself."`
	Truncate      string       `yaml:"truncate" enum:"tag|refuse" default:"tag" doc:"What TRUNCATE does: tag every row as deleted, or fail."`
}

// Pull is one line from the source to a target.
type Pull struct {
	Name        string      `yaml:"name" need:"true" doc:"The pull's name: it is kept at the source, so keep it the same."`
	Schedule    string      `yaml:"schedule" default:"@every 5s" doc:"When weir run pulls: five cron fields, or @every and a duration." example:"*/5 * * * *"`
	TimeZone    string      `yaml:"time_zone" doc:"The time zone of the schedule. Defaults to UTC." example:"Europe/Berlin"`
	Queue       string      `yaml:"queue" default:"default" pattern:"^[a-z0-9_]{1,30}$" doc:"The queue that is pulled. Each target needs a queue of its own for captures that it shares with another."`
	Target      Target      `yaml:"target" need:"true" doc:"The store that receives."`
	Captures    []string    `yaml:"captures" doc:"Tables of the captures to pull. Defaults to all."`
	Concepts    []weir.GUID `yaml:"concepts" doc:"ConceptGUIDs to pull. Defaults to all."`
	ChangeTypes []string    `yaml:"change_types" doc:"Change types to pull. Defaults to all."`
	Batch       int         `yaml:"batch" default:"5000" min:"1" max:"1000000" doc:"The most changes in one batch."`
	Lease       Duration    `yaml:"lease" default:"5m" doc:"How long a pull may hold its changes before another puller takes them over. A puller at work extends it."`
	MaxDeletes  MaxDeletes  `yaml:"max_deletes" doc:"The most deletes in one run, as a number or as a percentage of the target's rows; over it the pull stops until weir pull --allow-deletes. Defaults to no limit." example:"10%"`
	MaxAttempts int         `yaml:"max_attempts" default:"10" min:"1" doc:"How often a change may fail before it is kept as a dead letter."`
}

// Target is where changes go.
type Target struct {
	URL        URL             `yaml:"url" need:"true" doc:"The target. The scheme chooses the dialect: postgres or sqlite." example:"postgres://user@host/warehouse"`
	Schema     string          `yaml:"schema" doc:"The schema of the target's tables. Defaults to the dialect's own choice (postgres: public)."`
	Mode       weir.Mode       `yaml:"mode" enum:"mirror|soft delete|history" default:"mirror" doc:"What becomes of rows that are deleted or replaced: nothing stays, deleted rows stay and are marked, every version stays."`
	NewColumns weir.NewColumns `yaml:"new_columns" enum:"evolve|ignore|fail" default:"evolve" doc:"What to do with a column that the target's table lacks: add it, leave it out, or stop."`
}

// Log says how weir logs.
type Log struct {
	Format string `yaml:"format" enum:"text|json" default:"text" doc:"The form of a log line."`
	Level  string `yaml:"level" enum:"debug|info|warn|error" default:"info" doc:"The least level that is logged."`
}

// Lookup finds an environment variable, as [os.LookupEnv] does.
type Lookup func(name string) (string, bool)

// Load reads the file. Its errors are one or more [*weir.ConfigError], joined,
// in the order of their lines.
func Load(file string, env Lookup) (*Config, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &weir.ConfigError{File: file, Err: errors.New("there is no such file"),
			Hint: "--config FILE or WEIR_CONFIG; weir config schema says what the file holds"}
	}
	if err != nil {
		return nil, &weir.ConfigError{File: file, Err: err, Hint: "a file that weir may read"}
	}
	return Parse(file, data, env)
}

// Parse reads data as [Load] reads a file; file is the name for messages.
func Parse(file string, data []byte, env Lookup) (*Config, error) {
	c := &Config{file: file, lines: map[string]int{}}
	d := &decoder{file: file, env: env, lines: c.lines}
	d.document(data, c)
	if len(d.errs) == 0 {
		c.validate(d)
	}
	if len(d.errs) > 0 {
		return nil, d.joined()
	}
	return c, nil
}

// File is the name of the file, for messages.
func (c *Config) File() string { return c.file }

// Fault makes an error that names the file and the line of a key, such as
// pulls[0].schedule; a key that is not in the file has the line of what should
// hold it.
func (c *Config) Fault(key string, err error, hint string) *weir.ConfigError {
	return &weir.ConfigError{File: c.file, Line: lineOf(c.lines, key), Key: key, Hint: hint, Err: err}
}

// Pull finds a pull by its name, and its place among the pulls.
func (c *Config) Pull(name string) (*Pull, int, error) {
	var names []string
	for i := range c.Pulls {
		if c.Pulls[i].Name == name {
			return &c.Pulls[i], i, nil
		}
		names = append(names, c.Pulls[i].Name)
	}
	return nil, 0, c.Fault("pulls", fmt.Errorf("there is no pull %q", name), nearest(name, names))
}

// Duration is a time span such as 90s, 5m or 1h30m.
type Duration time.Duration

// UnmarshalText reads what [time.ParseDuration] reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return hinted{fmt.Errorf("%q is no duration", b), "a number with a unit: 90s, 5m, 1h30m"}
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the form that UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// MaxDeletes is the most deletes in one run. The zero value is no limit.
type MaxDeletes struct {
	Rows    int64
	Percent float64 // of the target's rows
}

// UnmarshalText reads a number (1000) or a percentage (10%).
func (m *MaxDeletes) UnmarshalText(b []byte) error {
	wrong := hinted{fmt.Errorf("%q is no limit of deletes", b), "a number of rows above 0 (1000) or a percentage of the target's rows (10%)"}
	text, percent := strings.CutSuffix(string(b), "%")
	if percent {
		p, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(p > 0 && p <= 100) {
			return wrong
		}
		*m = MaxDeletes{Percent: p}
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return wrong
	}
	*m = MaxDeletes{Rows: n}
	return nil
}

// MarshalText writes the form that UnmarshalText reads; nothing for no limit.
func (m MaxDeletes) MarshalText() ([]byte, error) {
	switch {
	case m == (MaxDeletes{}):
		return nil, nil
	case m.Percent > 0:
		return []byte(strconv.FormatFloat(m.Percent, 'f', -1, 64) + "%"), nil
	}
	return strconv.AppendInt(nil, m.Rows, 10), nil
}

// hinted is an error with what would be right.
type hinted struct {
	err  error
	hint string
}

func (h hinted) Error() string { return h.err.Error() }
