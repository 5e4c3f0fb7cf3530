package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// URL is a connection string. However it is printed, its password does not
// show; Reveal alone gives the whole.
type URL struct {
	// A pointer, so that even fmt, which reaches into unexported fields without
	// asking their methods, shows an address.
	secret *string
}

// NewURL wraps a connection string.
func NewURL(text string) URL { return URL{&text} }

// Reveal returns the connection string whole, for the driver and nobody else.
func (u URL) Reveal() string {
	if u.secret == nil {
		return ""
	}
	return *u.secret
}

// IsZero reports whether there is no connection string.
func (u URL) IsZero() bool { return u.Reveal() == "" }

// Scheme is what stands before the first colon, in lower case; empty where that
// is no scheme.
func (u URL) Scheme() string {
	scheme, _, found := strings.Cut(u.Reveal(), ":")
	if !found || !schemeForm.MatchString(scheme) {
		return ""
	}
	return strings.ToLower(scheme)
}

// String returns the connection string with its secrets replaced by xxxxx.
func (u URL) String() string { return redact(u.Reveal()) }

// GoString is as String.
func (u URL) GoString() string { return fmt.Sprintf("config.URL(%q)", u.String()) }

// Format prints String's form whatever the verb.
func (u URL) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'v' && f.Flag('#'):
		fmt.Fprint(f, u.GoString())
	case verb == 'q':
		fmt.Fprintf(f, "%q", u.String())
	default:
		fmt.Fprint(f, u.String())
	}
}

// LogValue is as String.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText is as String: what is written is for people, and cannot be read
// back.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText takes any text but a URL that is surely none; the dialect knows
// what is right.
func (u *URL) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		return hinted{errors.New("it is empty"), "postgres://user@host/db, sqlserver://user@host?database=db or sqlite:FILE"}
	}
	if err := escaped(string(b)); err != nil {
		return hinted{err, "write the characters of a password as a URL must have them: % as %25, @ as %40, / as %2F, ? as %3F, # as %23, a space as %20, and others by their code alike"}
	}
	*u = NewURL(string(b))
	return nil
}

// escaped refuses a URL whose password would be taken for another part of it: a
// driver would connect to a piece of the password, and say so. No message
// quotes it.
func escaped(text string) error {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL || scheme == "sqlite" || scheme == "file" {
		return nil
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	user, hosts := "", rest[:end]
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	// PostgreSQL's URLs may name several hosts, each with its port.
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse(scheme + "://" + user + host + rest[end:])
		if err != nil {
			return errors.New("it cannot be read as a URL; perhaps a character of the password is not escaped")
		}
		query := slices.ContainsFunc(strings.Split(u.RawQuery, "&"), func(field string) bool {
			return strings.Contains(field, "@") && !strings.Contains(field, "=")
		})
		if strings.Count(user, "@") > 1 || strings.Contains(u.EscapedPath(), "@") || strings.Contains(u.EscapedFragment(), "@") || query {
			return errors.New("a character of the user's name or password is not escaped")
		}
	}
	return nil
}

var (
	schemeForm  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)
	secretName  = regexp.MustCompile(`(?i)pass|pwd|secret|token`)
	secretField = regexp.MustCompile(`(?is)(\w*(?:pass|pwd|secret|token)\w*\s*=).*`)
	userinfo    = regexp.MustCompile(`(?s):.*@`)
)

const hidden = "xxxxx"

// redact hides more than it must where the text is not as it should be.
func redact(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		// host=h password=p, or a URL without its scheme.
		return secretField.ReplaceAllString(userinfo.ReplaceAllString(text, ":"+hidden+"@"), "${1}"+hidden)
	}
	u, err := url.Parse(text)
	if err != nil {
		return scheme + "://" + hidden
	}
	// A password with a / ? or # that is not escaped ends up behind the host.
	end := strings.IndexAny(rest, "/?#")
	if end >= 0 && strings.Contains(rest[end:], "@") && scheme != "sqlite" && scheme != "file" {
		return scheme + "://" + hidden
	}
	found := false
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), hidden)
		found = true
	}
	fields := strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' })
	for i, f := range fields {
		name, _, _ := strings.Cut(f, "=")
		if plain, err := url.QueryUnescape(name); err != nil || secretName.MatchString(plain) {
			fields[i] = name + "=" + hidden
			found = true
		}
	}
	if !found {
		return text
	}
	u.RawQuery = strings.Join(fields, "&")
	return u.String()
}
