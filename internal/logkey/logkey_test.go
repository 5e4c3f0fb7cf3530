package logkey

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// folders are the packages whose logs are held to the keys.
var folders = []string{"../../puller", "../../scheduler"}

// firstKey is the place of the first key in the arguments of a logger's method,
// or of a constructor of slog.
var firstKey = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0,
	"Any": 0, "Bool": 0, "Duration": 0, "Int": 0, "Int64": 0, "String": 0, "Time": 0,
}

// TestKeys finds a key in a log call that is none of the constants.
func TestKeys(t *testing.T) {
	known := constants(t)
	found := 0
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for _, key := range keys(call) {
					found++
					if !slices.Contains(known, key) {
						t.Errorf("%s: %q is no key of a log", set.Position(call.Pos()), key)
					}
				}
				return true
			})
		}
	}
	if found < 20 {
		t.Errorf("only %d keys are found", found)
	}
}

// keys are the literal keys of a call to a logger or to slog.
func keys(call *ast.CallExpr) (out []string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	first, ok := firstKey[method.Sel.Name]
	if !ok {
		return nil
	}
	on := method.X
	if field, ok := on.(*ast.SelectorExpr); ok {
		on = field.Sel
	}
	if name, ok := on.(*ast.Ident); !ok || name.Name != "log" && name.Name != "slog" {
		return nil
	}
	for i := first; i < len(call.Args); i += 2 {
		if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if key, err := strconv.Unquote(lit.Value); err == nil {
				out = append(out, key)
			}
		}
	}
	return out
}

func constants(t *testing.T) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "logkey.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			key, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil || slices.Contains(out, key) {
				t.Errorf("constant %s: %q, %v", v.Names[0], key, err)
			}
			out = append(out, key)
		}
		return true
	})
	return out
}
