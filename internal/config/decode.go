package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-cdc/weir"
)

// decoder fills a Config from YAML nodes and keeps every fault that it meets.
type decoder struct {
	file  string
	env   Lookup
	lines map[string]int
	errs  []*weir.ConfigError
}

func (d *decoder) fault(line int, key, hint, format string, args ...any) {
	d.errs = append(d.errs, &weir.ConfigError{File: d.file, Line: line, Key: key, Hint: hint, Err: fmt.Errorf(format, args...)})
}

// at is fault for a key whose line is known by its path.
func (d *decoder) at(key, hint, format string, args ...any) {
	d.fault(lineOf(d.lines, key), key, hint, format, args...)
}

// joined returns the faults in the order of their lines.
func (d *decoder) joined() error {
	slices.SortStableFunc(d.errs, func(a, b *weir.ConfigError) int { return a.Line - b.Line })
	out := make([]error, len(d.errs))
	for i, e := range d.errs {
		out[i] = e
	}
	return errors.Join(out...)
}

// lineOf finds the line of a key, or of the nearest key that holds it.
func lineOf(lines map[string]int, key string) int {
	for {
		if line, found := lines[key]; found {
			return line
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			return lines[""]
		}
		key = key[:cut]
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (d *decoder) document(data []byte, c *Config) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		d.syntax(err)
		return
	}
	if err := dec.Decode(&second); err == nil {
		d.fault(second.Line, "", "one document: remove the --- line", "the file holds a second document")
		return
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return
	}
	d.lines[""] = 1
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1}
	if len(doc.Content) > 0 && doc.Content[0].Tag != "!!null" {
		root = doc.Content[0]
	}
	d.value(root, "", reflect.ValueOf(c).Elem(), "")
}

// syntax reports what the YAML parser says, which quotes no values.
func (d *decoder) syntax(err error) {
	text, line := err.Error(), 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	d.fault(line, "", "check the indentation and the quotes near that line", "it is not YAML: %s", text)
}

// value decodes a node into v; tag is the field's.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		d.fault(n.Line, path, "give it a value, or remove the key", "it has no value")
		return
	}
	if _, text := v.Addr().Interface().(encoding.TextUnmarshaler); text || v.Kind() == reflect.String || v.Kind() == reflect.Int {
		d.scalar(n, path, v, tag)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, path, v)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fault(n.Line, path, "a list: [a, b], or a line with - for each", "it is %s, not a list", kindOf(n))
			return
		}
		for i, item := range n.Content {
			p := fmt.Sprintf("%s[%d]", path, i)
			d.lines[p] = item.Line
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			d.value(item, p, v.Index(i), tag)
		}
	default:
		panic(fmt.Sprintf("config: no decoder for %s at %s", v.Type(), path))
	}
}

// field is a key that a mapping may have.
type field struct {
	key  string
	tag  reflect.StructTag
	at   int
	need bool
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		if key := f.Tag.Get("yaml"); key != "" {
			out = append(out, field{key: key, tag: f.Tag, at: i, need: f.Tag.Get("need") == "true"})
		}
	}
	return out
}

func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	fields := fieldsOf(v.Type())
	var known []string
	for _, f := range fields {
		known = append(known, f.key)
	}
	if n.Kind != yaml.MappingNode {
		d.fault(n.Line, path, "keys under it: "+nearest("", known), "it is %s, not a mapping", kindOf(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, item := n.Content[i], n.Content[i+1]
		key := join(path, name.Value)
		at := slices.IndexFunc(fields, func(f field) bool { return f.key == name.Value })
		switch line, again := first[name.Value]; {
		case name.Value == "<<" || name.Kind != yaml.ScalarNode:
			d.fault(name.Line, path, "write each key out", "merged and composed keys are not read")
			continue
		case again:
			d.fault(name.Line, key, "remove one of the two", "the key is on line %d already", line)
			continue
		case at < 0:
			d.fault(name.Line, key, nearest(name.Value, known), "unknown key")
			continue
		}
		first[name.Value] = name.Line
		d.lines[key] = name.Line
		d.value(item, key, v.Field(fields[at].at), fields[at].tag)
	}
	for _, f := range fields {
		if _, given := first[f.key]; given {
			continue
		}
		key := join(path, f.key)
		if f.need {
			hint := f.key + ": " + f.tag.Get("example")
			if f.tag.Get("example") == "" {
				hint = "give it a value"
			}
			d.fault(n.Line, key, hint, "it is missing")
			continue
		}
		d.defaults(key, v.Field(f.at), f.tag)
	}
}

// defaults sets what a key that was left out holds.
func (d *decoder) defaults(path string, v reflect.Value, tag reflect.StructTag) {
	if text, has := tag.Lookup("default"); has {
		if err := assign(v, text, tag); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", path, err))
		}
		return
	}
	if v.Kind() == reflect.Struct && len(fieldsOf(v.Type())) > 0 {
		for _, f := range fieldsOf(v.Type()) {
			d.defaults(join(path, f.key), v.Field(f.at), f.tag)
		}
	}
}

func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if n.Kind != yaml.ScalarNode {
		d.fault(n.Line, path, "one value", "it is %s, not %s", kindOf(n), wanted(v))
		return
	}
	text, changed, err := expand(n.Value, d.env)
	if err != nil {
		d.report(n.Line, path, err)
		return
	}
	number := v.Kind() == reflect.Int
	_, limit := v.Addr().Interface().(*MaxDeletes)
	switch {
	case n.Tag == "!!str" && (!number || changed):
	case n.Tag == "!!int" && (number || limit):
	case number:
		d.fault(n.Line, path, "a whole number", "it is %s, not %s", kindOf(n), wanted(v))
		return
	default:
		d.fault(n.Line, path, fmt.Sprintf("quote it: %q", n.Value), "it is %s, not %s", kindOf(n), wanted(v))
		return
	}
	if err := assign(v, text, tag); err != nil {
		if changed && text != "" {
			// What a variable holds may be a secret in the wrong place.
			var h hinted
			errors.As(err, &h)
			err = hinted{errors.New(strings.ReplaceAll(err.Error(), text, n.Value)), h.hint}
		}
		d.report(n.Line, path, err)
	}
}

func (d *decoder) report(line int, path string, err error) {
	var h hinted
	if errors.As(err, &h) {
		d.fault(line, path, h.hint, "%w", h.err)
		return
	}
	d.fault(line, path, "", "%w", err)
}

// assign sets a scalar from its text, within the limits of its tag.
func assign(v reflect.Value, text string, tag reflect.StructTag) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Kind() == reflect.Int {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, 64)
		low, hasLow := tag.Lookup("min")
		high, hasHigh := tag.Lookup("max")
		lowest, _ := strconv.ParseInt(low, 10, 64)
		highest, _ := strconv.ParseInt(high, 10, 64)
		switch {
		case err != nil:
			return hinted{fmt.Errorf("%q is no number", text), "a whole number"}
		case hasLow && n < lowest:
			return hinted{fmt.Errorf("%d is too small", n), low + " or more"}
		case hasHigh && n > highest:
			return hinted{fmt.Errorf("%d is too large", n), high + " or less"}
		}
		v.SetInt(n)
		return nil
	}
	if list, has := tag.Lookup("enum"); has {
		if allowed := strings.Split(list, "|"); !slices.Contains(allowed, text) {
			return hinted{fmt.Errorf("%q is not known", text), nearest(text, allowed)}
		}
	}
	if form, has := tag.Lookup("pattern"); has && !regexp.MustCompile(form).MatchString(text) {
		return hinted{fmt.Errorf("%q is not allowed", text), "a text that matches " + form}
	}
	if text == "" {
		return hinted{errors.New("it is empty"), "give it a value, or remove the key"}
	}
	v.SetString(text)
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!str":
		return "a text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	}
	return n.Tag
}

func wanted(v reflect.Value) string {
	if v.Kind() == reflect.Int {
		return "a whole number"
	}
	return "a text"
}
