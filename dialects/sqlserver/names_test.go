package sqlserver

import (
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

func TestIdent(t *testing.T) {
	for name, want := range map[string]string{
		"Orders":        "[Orders]",
		"a]b":           "[a]]b]",
		"]":             "[]]]",
		"[x]":           "[[x]]]",
		`it's "quoted"`: `[it's "quoted"]`,
		"ü🙂":            "[ü🙂]",
	} {
		if got := ident(name); got != want {
			t.Errorf("ident(%q) = %s, want %s", name, got, want)
		}
	}
	if got, want := tableName(weir.Table{Schema: "d.bo", Name: "My]Table"}), "[d.bo].[My]]Table]"; got != want {
		t.Errorf("tableName = %s, want %s", got, want)
	}
	if got, want := literal("it's"), "N'it''s'"; got != want {
		t.Errorf("literal = %s, want %s", got, want)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abc", 2, "ab"},
		{"a🙂b", 3, "a🙂"},
		{"a🙂b", 2, "a"},
		{strings.Repeat("é", 130), maxName, strings.Repeat("é", 128)},
	} {
		if got := cut(c.name, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.name, c.n, got, c.want)
		}
	}
	if got := units("a🙂é"); got != 4 {
		t.Errorf("units = %d, want 4", got)
	}
}
