package sqlserver

import (
	"regexp"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"
)

// Babelfish for PostgreSQL speaks TDS and most of T-SQL. What it lacks of the
// T-SQL that SQL Server needs is put otherwise here, and nowhere else but where
// a server is asked what it is.

// babelfishModule replaces a module without CREATE OR ALTER.
func babelfishModule(text string) []string {
	kindName := strings.Fields(text[strings.Index(text, "CREATE OR ALTER")+len("CREATE OR ALTER"):])
	name := text[strings.Index(text, kindName[0]+" ")+len(kindName[0])+1:]
	name = strings.TrimSpace(name[:nameEnd(name)])
	return []string{
		"DROP " + kindName[0] + " IF EXISTS " + name,
		"EXEC(" + literal(strings.Replace(text, "CREATE OR ALTER", "CREATE", 1)) + ")",
	}
}

// nameEnd is where a quoted schema.name at the beginning of a text ends.
func nameEnd(s string) int {
	in := false
	for i := 0; i < len(s); i++ {
		switch {
		case !in && s[i] == '[':
			in = true
		case in && s[i] == ']' && i+1 < len(s) && s[i+1] == ']':
			i++
		case in && s[i] == ']':
			in = false
		case !in && s[i] != '.':
			return i
		}
	}
	return len(s)
}

// babelfishErrors: it gives most errors one number, 33557097.
var babelfishErrors = strings.NewReplacer("ERROR_NUMBER()",
	"CASE WHEN ERROR_MESSAGE() LIKE '%lock timeout%' THEN 1222 WHEN ERROR_MESSAGE() LIKE '%could not serialize%' THEN 3960 ELSE ERROR_NUMBER() END")

// Its STRING_ESCAPE gives NULL for an empty text, and escapes the bytes of a
// letter one by one; and its REPLACE takes two backslashes for one in what it
// puts in.
var stringEscape = regexp.MustCompile(`STRING_ESCAPE\((.+?), 'json'\)`)

// Its JSON_VALUE gives a text with its escapes.
var jsonValue = regexp.MustCompile(`JSON_VALUE\(.+?, '\$\[\d\]'\)`)

const babelfishUnescape = `REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE($0, '\\', CHAR(2)), '\"', '"'), '\n', CHAR(10)), '\r', CHAR(13)), '\t', CHAR(9)), '\u0001', CHAR(1)), CHAR(2), '\\')`

const babelfishEscape = `REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE($1, '\', '\\\\'), '"', '\\"'), CHAR(10), '\\n'), CHAR(13), '\\r'), CHAR(9), '\\t'), CHAR(1), '\\u0001')`

// spoken is a text of T-SQL as the server knows it.
func (s *Source) spoken(text string) string {
	if s.made == nil || !s.made.babelfish {
		return text
	}
	text = jsonValue.ReplaceAllString(text, babelfishUnescape)
	return stringEscape.ReplaceAllString(babelfishErrors.Replace(text), babelfishEscape)
}

// babelfishNumber finds SQL Server's number for an error that has none.
func babelfishNumber(e mssql.Error) mssql.Error {
	if e.Number == 33557097 {
		switch {
		case strings.Contains(e.Message, "lock timeout"):
			e.Number = errLockTimeout
		case strings.Contains(e.Message, "could not serialize"):
			e.Number = errSnapshot
		case strings.Contains(e.Message, "permission denied"):
			e.Number = errRights
		case strings.HasPrefix(e.Message, "login error: role "), strings.HasPrefix(e.Message, "login error: password authentication failed"):
			e.Number = errLogin
		case strings.HasPrefix(e.Message, "procedure ") && strings.HasSuffix(e.Message, " does not exist"):
			e.Number = errNoSuchProcedure
		case strings.HasPrefix(e.Message, "relation ") && strings.HasSuffix(e.Message, " does not exist"):
			e.Number = errUnknownObject
		}
	}
	return e
}

// spoilt reports that a connection is of no use after an error that the server
// answered: on Babelfish a procedure that failed leaves its temporary tables.
func (s *Source) spoilt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made != nil && s.made.babelfish
}

// listed is a text of a row of a table-valued parameter. Babelfish pastes it
// between quotes.
func (s *Source) listed(text string) string {
	if s.made == nil || !s.made.babelfish {
		return text
	}
	return strings.ReplaceAll(text, "'", "''")
}
