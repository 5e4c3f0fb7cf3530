package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/weir-cdc/weir"
)

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := encode(m.key)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode leaves < and > as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Schema is the JSON Schema (draft 2020-12) of weir.yaml, made from the types.
func Schema() ([]byte, error) {
	head := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "weir.yaml"},
		{"description", "The configuration of weir. ${NAME} in a value takes an environment variable, $$ is a plain $."},
	}
	text, err := encode(append(head, structSchema(reflect.TypeFor[Config]())...))
	if err != nil {
		return nil, fmt.Errorf("make the schema: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, fmt.Errorf("make the schema: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

func structSchema(t reflect.Type) object {
	properties := object{}
	var required []string
	for _, f := range fieldsOf(t) {
		o := object{{"description", f.tag.Get("doc")}}
		o = append(o, typeSchema(t.Field(f.at).Type, f.tag)...)
		if text, has := f.tag.Lookup("default"); has {
			var value any = text
			if n, err := strconv.Atoi(text); err == nil {
				value = n
			}
			o = append(o, member{"default", value})
		}
		if text := f.tag.Get("example"); text != "" {
			o = append(o, member{"examples", []string{text}})
		}
		properties = append(properties, member{f.key, o})
		if f.need {
			required = append(required, f.key)
		}
	}
	out := object{{"type", "object"}, {"additionalProperties", false}, {"properties", properties}}
	if required != nil {
		out = append(out, member{"required", required})
	}
	return out
}

const (
	fromVariable = `\$\{[A-Za-z_][A-Za-z0-9_]*\}`
	durationForm = `([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)`
)

func typeSchema(t reflect.Type, tag reflect.StructTag) object {
	switch t {
	case reflect.TypeFor[Duration]():
		return object{{"type", "string"}, {"pattern", "^(" + durationForm + ")+$|" + fromVariable}}
	case reflect.TypeFor[MaxDeletes]():
		return object{{"type", []string{"integer", "string"}}, {"minimum", 1}, {"pattern", `^[0-9]+(\.[0-9]+)?%$|^[0-9]+$|` + fromVariable}}
	case reflect.TypeFor[URL]():
		return object{{"type", "string"}, {"minLength", 1}}
	case reflect.TypeFor[weir.GUID]():
		return object{{"type", "string"}, {"pattern", `^\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?$|` + fromVariable}}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return object{{"type", "array"}, {"items", typeSchema(t.Elem(), tag)}}
	case reflect.Int:
		o := object{{"type", []string{"integer", "string"}}}
		for _, limit := range [][2]string{{"min", "minimum"}, {"max", "maximum"}} {
			if text, has := tag.Lookup(limit[0]); has {
				o = append(o, member{limit[1], json.Number(text)})
			}
		}
		return append(o, member{"pattern", fromVariable})
	case reflect.String:
		if list, has := tag.Lookup("enum"); has {
			// A variable may stand for one of the words.
			return object{{"type", "string"}, {"anyOf", []object{{{"enum", strings.Split(list, "|")}}, {{"pattern", fromVariable}}}}}
		}
		if form, has := tag.Lookup("pattern"); has {
			return object{{"type", "string"}, {"pattern", form + "|" + fromVariable}}
		}
		return object{{"type", "string"}, {"minLength", 1}}
	default:
		panic("config: no schema for " + t.String())
	}
}
