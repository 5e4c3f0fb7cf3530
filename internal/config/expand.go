package config

import (
	"fmt"
	"regexp"
	"strings"
)

var reference = regexp.MustCompile(`\$\$|\$\{([^}]*)\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} by the environment's value and $$ by $. It works on a
// value that YAML has been parsed out of already, so what a variable holds is
// never read as YAML. changed reports that a variable was taken.
func expand(text string, env Lookup) (out string, changed bool, err error) {
	out = reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		name := strings.TrimSuffix(strings.TrimPrefix(ref, "${"), "}")
		switch value, found := env(name); {
		case err != nil:
		case !strings.HasSuffix(ref, "}"):
			err = hinted{fmt.Errorf("${ is never closed"), "${NAME} takes an environment variable; $${ is a plain ${"}
		case !variableName.MatchString(name):
			err = hinted{fmt.Errorf("${%s} is no name of an environment variable", name), "${NAME}: letters, digits and _; $${ is a plain ${"}
		case !found:
			err = hinted{fmt.Errorf("the environment variable %s is not set", name), fmt.Sprintf("export %s=..., or write $${%s} for the text itself", name, name)}
		default:
			changed = true
			return value
		}
		return ref
	})
	return out, changed, err
}
