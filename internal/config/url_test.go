package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

func TestURL_String(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"postgres://user@host/db", "postgres://user@host/db"},
		{"postgres://user:hunter2@host:5432/db?sslmode=require", "postgres://user:xxxxx@host:5432/db?sslmode=require"},
		{"postgres://", "postgres://"},
		{"postgres://host/db?user=u&password=hunter2&sslpassword=hunter2", "postgres://host/db?user=u&password=xxxxx&sslpassword=xxxxx"},
		{"postgres://host/db?pass%77ord=hunter2", "postgres://host/db?pass%77ord=xxxxx"},
		{"postgres://host/db?PASSWORD=hunter2;a=b", "postgres://host/db?PASSWORD=xxxxx&a=b"},
		{"sqlserver://sa:hunter2@host?access+token=hunter2", "sqlserver://sa:xxxxx@host?access+token=xxxxx"},
		{"postgres://u:hunter2@x@host/db", "postgres://u:xxxxx@host/db"},
		{"postgres://u:hunter2/x@host/db", "postgres://xxxxx"},
		{"postgres://u:12/hunter2@host/db", "postgres://xxxxx"},
		{"postgres://u:12?hunter2@host/db", "postgres://xxxxx"},
		{"postgres://u:12#hunter2@host/db", "postgres://xxxxx"},
		{"postgres://u:%zzhunter2@host/db", "postgres://xxxxx"},
		{"host=h password=hunter2 user=u", "host=h password=xxxxx"},
		{"host=h password = 'hunter2 hunter2' user=u", "host=h password =xxxxx"},
		{"Server=h;Pwd=hunter2;x=y", "Server=h;Pwd=xxxxx"},
		{"u:hunter2@host/db", "u:xxxxx@host/db"},
		{"sqlite:a.db", "sqlite:a.db"},
		{"sqlite:///tmp/a@b.db", "sqlite:///tmp/a@b.db"},
		{"/tmp/a.db", "/tmp/a.db"},
		{"", ""},
	} {
		if got := NewURL(c.in).String(); got != c.want {
			t.Errorf("%s is shown as %s, want %s", c.in, got, c.want)
		}
	}
}

// A planted password shows in no way of printing, wherever the URL stands.
func TestURL_ShowsNoPassword(t *testing.T) {
	const secret = "hunter2"
	type hidden struct{ url URL }
	var out bytes.Buffer
	for _, text := range []string{"postgres://u:hunter2@h/d", "postgres://h/d?password=hunter2", "host=h password=hunter2", "postgres://h/d?sslpassword=hunter2"} {
		c := parse(t, "source: {url: '${U}'}\ncaptures: [{table: t}]\npulls: [{name: p, target: {url: '${U}', schema: x}}]\n", "U", text)
		if c.Source.URL.Reveal() != text {
			t.Fatalf("the whole is %s", c.Source.URL.Reveal())
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
			for _, v := range []any{c, *c, c.Source, &c.Source, c.Source.URL, &c.Source.URL, c.Pulls, hidden{c.Source.URL}, &hidden{c.Source.URL}, []URL{c.Source.URL}} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("x", "url", c.Source.URL, "source", c.Source, "config", c, "pulls", c.Pulls)
		}
		j, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(j)
		fmt.Fprintln(&out, c.Fault("source.url", errors.New("x"), ""))
	}
	// Faults do not show it either, wherever it was put.
	for _, text := range []string{
		"source: postgres://u:hunter2@h/d\n",
		"source: {url: [postgres://u:hunter2@h/d]}\n",
		"source: {url: 'postgres://u:hunter2@h/d', schema: {password: hunter2}}\n",
		"source: {url: 'postgres://u:hunter2@h/d', password: hunter2}\n",
		"source: {url: \"postgres://u:hunter2@h/d}\n",
		"source: {url: '${P}', schema: [${P}]}\nlog: {level: '${P}'}\npulls: [{lease: '${P}', batch: '${P}', max_deletes: '${P}', concepts: ['${P}']}]",
	} {
		_, err := Parse("weir.yaml", []byte(text), env("P", secret))
		if err == nil {
			t.Errorf("no error for %s", text)
		}
		fmt.Fprintf(&out, "%v %+v %#v\n", err, err, err)
		var fault *weir.ConfigError
		if errors.As(err, &fault) {
			fmt.Fprintf(&out, "%+v\n", *fault)
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, secret) || strings.Contains(line, fmt.Sprintf("%x", secret)) {
			t.Errorf("it shows: %s", line)
		}
	}
}

// A password that is not escaped is refused where it would be taken for a host,
// and not shown.
func TestURL_Unescaped(t *testing.T) {
	for _, bad := range []string{
		"postgres://u:hunter2@x@host/db", "postgres://u:12/hunter2@host/db", "postgres://u:12?hunter2@host/db", "postgres://u:12#hunter2@host/db",
		"postgres://u:%zzhunter2@host/db", "postgres://u:hun ter2@host/db", "postgres://u:hunter2/x@host/db", "sqlserver://sa:hunter2#@host?database=d",
		"postgres://u:hunter2@h:5432/db:x@y", "postgres://u:hunter2@host:port/db",
	} {
		var u URL
		err := u.UnmarshalText([]byte(bad))
		var h hinted
		if !errors.As(err, &h) || !strings.Contains(h.hint, "@ as %40") {
			t.Errorf("%s: %v", bad, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message shows the password: %v", bad, err)
		}
	}
	for _, good := range []string{
		"postgres://u:p%40ss%2Fw@host/db", "postgres://u@h1:5432,h2:5433/db?target_session_attrs=primary", "postgres:///db?host=/tmp", "postgres://",
		"sqlserver://host?database=d&user+id=me@tenant", "sqlserver://sa:x@host/instance", "sqlite:///tmp/a@b.db", "sqlite:a%zz.db", "host=h password=a@b", "postgres://[::1]:5432/db",
	} {
		var u URL
		if err := u.UnmarshalText([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
