package testdb

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Run runs the tests of a package and returns the exit code for os.Exit:
//
//	func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }
//
// Afterwards it stops the shared server, fails when the tests left a goroutine
// running, and prints a line for each engine that tests asked for: where it ran,
// or why it was skipped.
func Run(m *testing.M, ignore ...goleak.Option) int {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = max(code, 1)
	}
	// The fuzzer's own goroutines outlive m.Run.
	fuzz := flag.Lookup("test.fuzz")
	if code == 0 && (fuzz == nil || fuzz.Value.String() == "") {
		if err := goleak.Find(ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "testdb:", err)
			code = 1
		}
	}
	if err := report(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = max(code, 1)
	}
	return code
}

// uses counts tests by engine and by what became of their wish for it.
var uses struct {
	sync.Mutex
	tests map[string]map[string]bool // "postgres: skipped: why" -> names of tests
}

func use(t testing.TB, line string) {
	uses.Lock()
	defer uses.Unlock()
	if uses.tests == nil {
		uses.tests = map[string]map[string]bool{}
	}
	if uses.tests[line] == nil {
		uses.tests[line] = map[string]bool{}
	}
	uses.tests[line][t.Name()] = true
}

func ran(t testing.TB, engine, where string) { use(t, engine+": ran: "+where) }

// skip ends the test as not covered, or as failed where the engine is required.
func skip(t testing.TB, engine, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("WEIR_TEST_REQUIRE"), ","), engine) {
		t.Fatalf("testdb: WEIR_TEST_REQUIRE names %s, but %s", engine, why)
	}
	notCovered(t, engine, why)
}

// notCovered ends the test as not covered.
func notCovered(t testing.TB, engine, why string) {
	t.Helper()
	use(t, engine+": skipped: "+why)
	t.Skipf("not covered: %s on %s: %s", t.Name(), engine, why)
}

func report() error {
	uses.Lock()
	defer uses.Unlock()
	var lines []string
	for line, tests := range uses.tests {
		lines = append(lines, fmt.Sprintf("%s (tests: %d)", line, len(tests)))
	}
	sort.Strings(lines)
	pkg := "tests"
	if info, ok := debug.ReadBuildInfo(); ok {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	var all strings.Builder
	for _, line := range lines {
		fmt.Printf("testdb: %s\n", line)
		fmt.Fprintf(&all, "%s: %s\n", pkg, line)
	}
	name := os.Getenv("WEIR_TEST_SUMMARY")
	if name == "" || all.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	_, err = f.WriteString(all.String())
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
