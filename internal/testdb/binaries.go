package testdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// binPlaces are patterns of directories where packagers put PostgreSQL's
// programs outside PATH.
var binPlaces = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // the PostgreSQL project's RPMs
	"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on ARM
	"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
}

var number = regexp.MustCompile(`[0-9]+`)

// binDirs returns the directories that may hold PostgreSQL's programs: that of
// the server in PATH, then the packagers', the newest version first.
func binDirs() []string {
	var dirs []string
	for _, place := range binPlaces {
		found, _ := filepath.Glob(place) // the patterns are well-formed
		dirs = append(dirs, found...)
	}
	version := func(dir string) int {
		n, _ := strconv.Atoi(number.FindString(dir))
		return n
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = slices.Insert(dirs, 0, filepath.Dir(path))
		}
	}
	return dirs
}

// serverBin returns the directory of a PostgreSQL server's programs, or why
// there is none.
func serverBin() (dir, missing string) {
	missing = fmt.Sprintf("no PostgreSQL server (initdb and postgres, %d or later) on this machine", oldest)
	for _, dir := range binDirs() {
		if !executable(filepath.Join(dir, "initdb")) || !executable(filepath.Join(dir, "postgres")) {
			continue
		}
		out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
		if err != nil {
			missing = fmt.Sprintf("the PostgreSQL server in %s does not run: %v", dir, err)
			continue
		}
		version, _ := strconv.Atoi(number.FindString(string(out)))
		if version < oldest {
			missing = fmt.Sprintf("the PostgreSQL server in %s is of version %d, and the tests need %d or later", dir, version, oldest)
			continue
		}
		return dir, ""
	}
	return "", missing
}

// Bin returns the path of one of PostgreSQL's programs, such as pg_dump: the
// one beside the server of this package when there is one. The test is skipped
// when the program is missing.
func Bin(t testing.TB, name string) string {
	t.Helper()
	dirs := binDirs()
	if dir, missing := serverBin(); missing == "" {
		dirs = slices.Insert(dirs, 0, dir)
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); executable(path) {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		skip(t, "postgres", "no "+name+" on this machine")
	}
	return path
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
