package triggers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/weir-cdc/weir"
)

// File is a migration that Render made.
type File struct {
	Name string
	Text string
}

// migration is the name of a golang-migrate file.
var migration = regexp.MustCompile(`^([0-9]+)_(.*)\.(up|down)\.sql$`)

// Render writes the plan as golang-migrate files into a directory: a pair a
// table, numbered on from the highest number there. It returns the names of the
// files that it wrote. A pair that the directory holds already as its latest of
// that table, word for word, is not written again.
//
// A down file drops what its up file created. It leaves what the up file
// replaced or dropped: no file knows what was there before, and a change must
// not go uncaptured in silence.
func Render(dir string, p *Plan) ([]string, error) {
	err := os.MkdirAll(dir, 0o755)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil, &weir.ConfigError{Key: "--dir", Err: fmt.Errorf("read %s: %w", dir, cause(err)), Hint: "a directory that you may write to; it is made where it is not there"}
	}
	number, latest := uint64(0), map[string]string{} // the latest number of a name
	for _, e := range entries {
		m := migration.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		n, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			return nil, &weir.ConfigError{Key: "--dir", Err: fmt.Errorf("the number of %s is too large", e.Name()), Hint: "golang-migrate takes 64 bits"}
		}
		number = max(number, n)
		if old, err := strconv.ParseUint(latest[m[2]], 10, 64); err != nil || n > old {
			latest[m[2]] = m[1]
		}
	}
	var written []string
	for _, pair := range p.pairs() {
		if there(dir, latest[pair.name], pair) {
			continue
		}
		number++
		for _, f := range pair.files(fmt.Sprintf("%06d", number)) {
			if err := write(filepath.Join(dir, f.Name), f.Text); err != nil {
				return written, fmt.Errorf("render %s: %w", f.Name, err)
			}
			written = append(written, f.Name)
		}
	}
	return written, nil
}

// write never replaces a file.
func write(path, text string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}

func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

type pair struct{ name, up, down string }

func (p pair) files(number string) []File {
	return []File{{number + "_" + p.name + ".up.sql", p.up}, {number + "_" + p.name + ".down.sql", p.down}}
}

func there(dir, number string, p pair) bool {
	if number == "" {
		return false
	}
	for _, f := range p.files(number) {
		if text, err := os.ReadFile(filepath.Join(dir, f.Name)); err != nil || string(text) != f.Text {
			return false
		}
	}
	return true
}

// pairs renders each group of the plan.
func (p *Plan) pairs() []pair {
	// A queue may be dropped only where no capture that stays feeds it.
	replaces := slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Action == Replace })
	var out []pair
	for _, g := range p.groups() {
		var up, down, kept strings.Builder
		fmt.Fprintf(&up, "-- weir: %s. Apply this in one transaction, with a lock time-out where the engine\n-- has one: a trigger needs a short lock on its table.\n", heading(g))
		fmt.Fprintf(&down, "-- weir: %s. This drops what the up file created.\n", heading(g))
		writeSteps(&up, g)
		for _, s := range slices.Backward(g) {
			switch {
			case s.Action != Create, s.Object.Kind == weir.QueueTable && replaces:
				fmt.Fprintf(&kept, "-- not undone: %s %s\n", s.Action, oneLine(describe(s.Object)))
			default:
				fmt.Fprintf(&down, "\n-- drop %s\n", oneLine(describe(s.Object)))
				writeSQL(&down, s.Object.Drop)
			}
		}
		if kept.Len() > 0 {
			down.WriteString("\n" + kept.String())
		}
		out = append(out, pair{"weir_" + slug(g), up.String(), down.String()})
	}
	return out
}

// slug makes a file name's middle of a table's name.
func slug(g []Step) string {
	if g[0].Object.Kind == weir.QueueTable {
		return "queues"
	}
	name := g[0].Group.String()
	s := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '_'
	}, name)
	for len(s) > 150 { // file systems take 255 bytes
		s = s[:strings.LastIndexFunc(s, func(rune) bool { return true })]
	}
	return s
}
