package weir_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-cdc/weir"

// arrows says which packages of the module a package may import, by patterns of
// path.Match, relative to the module; "." is the root. The first row that
// matches a package counts. Tests may also import what they exercise.
var arrows = []struct {
	from string
	to   []string
}{
	{".", nil},
	{"sql", nil},
	{"puller", []string{"."}},
	{"triggers", []string{"."}},
	{"scheduler", []string{"puller", "."}},
	{"dialects", []string{"dialects/*", "."}},
	{"dialects/dialecttest", []string{".", "internal/testdb", "puller", "triggers"}},
	{"dialects/*", []string{".", "sql"}},
	{"internal/*", []string{"."}},
	{"internal/testdb/*", nil}, // for test.sh
	{"cmd/*", []string{"scheduler", "puller", "triggers", "dialects", ".", "internal/*"}},
	{"bench", nil}, // tests only
}

// forTests are packages that nothing but a test may import.
var forTests = []string{"internal/testdb", "internal/doctest", "dialects/dialecttest"}

// users says who alone may import a package; tests have no more rights.
var users = map[string]string{
	module + "/sql":             "dialects/*",
	"github.com/robfig/cron/v3": "scheduler",
}

type goPackage struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// TestArrows reads what every package imports, and fails on an import that the
// design does not allow.
func TestArrows(t *testing.T) {
	packages := goList(t, "./...")
	if len(packages) < 2 {
		t.Fatalf("go list found %d packages", len(packages))
	}
	for _, pkg := range packages {
		from := relative(pkg.ImportPath)
		allowed, known := allowedFrom(from)
		if !known {
			t.Errorf("%s has no row in arrows: say what it may import", pkg.ImportPath)
			continue
		}
		for _, imported := range pkg.Imports {
			to := relative(imported)
			if to == "" {
				continue
			}
			if !matches(to, allowed...) {
				t.Errorf("%s imports %s; it may import of this module: %s", pkg.ImportPath, imported, strings.Join(allowed, ", "))
			}
			if slices.Contains(forTests, to) && !slices.Contains(forTests, from) {
				t.Errorf("%s imports %s, which is for tests", pkg.ImportPath, imported)
			}
		}
		for _, imported := range slices.Concat(pkg.Imports, pkg.TestImports, pkg.XTestImports) {
			if user, ok := users[imported]; ok && !matches(from, user) {
				t.Errorf("%s imports %s, which only %s may", pkg.ImportPath, imported, user)
			}
		}
	}
}

// TestRootImportsStandardLibraryOnly keeps drivers out of the words that
// everything else is said in.
func TestRootImportsStandardLibraryOnly(t *testing.T) {
	root := goList(t, ".")[0]
	if len(root.Imports) == 0 {
		return
	}
	for _, pkg := range goList(t, root.Imports...) {
		if !pkg.Standard {
			t.Errorf("%s imports %s", root.ImportPath, pkg.ImportPath)
		}
	}
}

func allowedFrom(from string) (to []string, known bool) {
	for _, row := range arrows {
		if matches(from, row.from) {
			return row.to, true
		}
	}
	return nil, false
}

func matches(name string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// relative returns a package's path in the module, "." for the root, and ""
// for a package of another module.
func relative(importPath string) string {
	if importPath == module {
		return "."
	}
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return rest
}

func goList(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	// -e: a package that does not build fails elsewhere.
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Standard,Imports,TestImports,XTestImports"}, patterns...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var pkg goPackage
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, pkg)
	}
}
