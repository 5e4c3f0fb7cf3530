package puller

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// TestProtocol has the model of the protocol checked, and sees that the checker
// finds what is violated when a part of the protocol is taken away.
func TestProtocol(t *testing.T) {
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT COVERED: the model of the protocol: %s is not installed", tool)
		}
	}
	model, err := filepath.Abs("../docs/protocol/pull.pml")
	if err != nil {
		t.Fatal(err)
	}
	noFaults := []string{"-DCRASHES=0", "-DLOST=0", "-DOUTAGES=0", "-DEXPIRED=0"}
	oneEach := []string{"-DCRASHES=0", "-DLOST=0"}
	const (
		lost  = `assertion violated \(\(\(target==source\)|assertion violated \(target==source\)`
		dirty = `assertion violated \(common&`
		back  = `assertion violated \(read>=target\)`
		twice = `assertion violated \(what!=2\)`
		both  = `assertion violated \(state\[pull\]!=`
	)
	for _, test := range []struct {
		name     string
		switches []string
		finds    string // empty: no error
	}{
		{"outage and expiry", oneEach, ""},
		{"crash and expiry", []string{"-DLOST=0", "-DOUTAGES=0"}, ""},
		{"lost answer and expiry", []string{"-DCRASHES=0", "-DOUTAGES=0"}, ""},
		{"three transactions", append([]string{"-DWRITES=3", "-DBLIND=3"}, noFaults...), ""},
		{"three transactions and a crash", []string{"-DWRITES=3", "-DLOST=0", "-DOUTAGES=0", "-DEXPIRED=0"}, ""},
		{"pull kept", append([]string{"-DKEEP_PULL", "-DONLY=1"}, oneEach...), lost},
		{"no wait", append([]string{"-DNO_WAIT", "-DONLY=1"}, oneEach...), lost},
		{"no wait goes back", append([]string{"-DNO_WAIT", "-DONLY=3"}, oneEach...), back},
		{"other type not looked at", append([]string{"-DNO_OTHER", "-DONLY=1"}, oneEach...), lost},
		{"no ledger", append([]string{"-DNO_LEDGER", "-DONLY=1"}, oneEach...), lost},
		{"no revocation", append([]string{"-DNO_REVOKE", "-DONLY=1"}, oneEach...), lost},
		{"settled and released", append([]string{"-DNO_REVOKE", "-DONLY=5"}, oneEach...), both},
		{"dirty read", append([]string{"-DDIRTY_READ", "-DONLY=2"}, oneEach...), dirty},
		{"both types at once", append([]string{"-DNO_EARLIER", "-DONLY=4"}, oneEach...), twice},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := checkModel(t, model, test.switches)
			errs := regexp.MustCompile(`errors: (\d+)`).FindSubmatch(out)
			states := regexp.MustCompile(`(\d+) states, stored`).FindSubmatch(out)
			switch {
			case errs == nil || states == nil:
				t.Fatalf("the checker did not finish:\n%s", out)
			case test.finds == "":
				if string(errs[1]) != "0" {
					t.Errorf("the checker found an error:\n%s", out)
				}
				if regexp.MustCompile(`search depth too small`).Match(out) {
					t.Error("the checker did not look at everything: -m is too small")
				}
			case !regexp.MustCompile(test.finds).Match(out):
				t.Errorf("the checker did not find %s:\n%s", test.finds, out)
			}
			if states != nil {
				t.Logf("%s states", states[1])
			}
		})
	}
}

// checkModel returns what the checker prints.
func checkModel(t *testing.T, model string, switches []string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	text, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pull.pml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		append([]string{"spin", "-a"}, append(switches, "pull.pml")...),
		{"gcc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c"},
	} {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	pan := exec.CommandContext(ctx, "./pan", "-m100000", "-w20")
	pan.Dir = dir
	out, err := pan.CombinedOutput()
	if err != nil {
		t.Fatalf("pan: %v\n%s", err, out)
	}
	return out
}
