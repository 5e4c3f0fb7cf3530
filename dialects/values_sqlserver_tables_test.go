package dialects_test

import (
	"strings"

	"github.com/weir-cdc/weir/dialects/dialecttest"
)

var sqlserverTypes = []string{"create type dbo.Phone from varchar(20)"}

// onlySQLServerType: Babelfish lacks the type, the value or its last digit, or
// a conversion.
func onlySQLServerType(v dialecttest.Value) bool {
	return lacking[v.Type] || strings.Contains(v.Literal, ".1234567") || strings.Contains(v.Literal, "nchar(0)") || v.Literal == "default" ||
		v.Type == "sql_variant" && strings.Contains(v.Literal, "varbinary")
}

// sqlserverValues are values of SQL Server, the neutral text of each, what
// PostgreSQL makes of it (empty: that text) and what SQLite makes of it (empty:
// that text as a string; "same": as a literal).
var sqlserverValues = []struct{ typ, literal, neutral, postgres, sqlite string }{
	{"bit", "1", "true", "t", "1"},
	{"bit", "0", "false", "f", "0"},
	{"bit", "null", "<null>", "", ""},
	{"tinyint", "255", "255", "", "same"},
	{"smallint", "-32768", "-32768", "", "same"},
	{"int", "-2147483648", "-2147483648", "", "same"},
	{"int", "2147483647", "2147483647", "", "same"},
	{"bigint", "-9223372036854775808", "-9223372036854775808", "", "same"},
	{"bigint", "9223372036854775807", "9223372036854775807", "", "same"},

	{"decimal(38,10)", "1234567890123456789012345678.0123456789", "1234567890123456789012345678.0123456789", "", ""},
	{"decimal(38,0)", "-99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "", ""},
	{"decimal(18,4)", "1.10", "1.1000", "", ""},
	{"decimal(18,4)", "0", "0.0000", "", ""},
	{"numeric(5,5)", "0.00123", "0.00123", "", ""},
	{"numeric(5,5)", "null", "<null>", "", ""},
	{"money", "-922337203685477.5808", "-922337203685477.5808", "", ""},
	{"money", "1.5", "1.5000", "", ""},
	{"smallmoney", "214748.3647", "214748.3647", "", ""},
	{"smallmoney", "-0.0001", "-0.0001", "", ""},

	{"real", "0.1", "0.1", "", "same"},
	{"real", "3.4028235e38", "3.4028235e+38", "", "3.4028235e+38"},
	{"real", "16777217", "1.6777216e+07", "", "16777216.0"},
	{"float", "0.1", "0.1", "", "same"},
	{"float", "1e300", "1e+300", "", "1.0e+300"},
	{"float", "1.7976931348623157e308", "1.7976931348623157e+308", "", "1.7976931348623157e+308"},
	{"float", "9007199254740993", "9.007199254740992e+15", "", "9007199254740992.0"},
	{"float", "convert(float, 0) * convert(float, -1)", "-0", "", refused},
	{"float", "0", "0", "", "0.0"},

	{"char(5)", "'ab'", "ab   ", "", ""},
	{"char(5)", "''", "     ", "", ""},
	{"char(5)", "'caf' + char(233)", "café ", "", ""},
	{"varchar(50)", "''", "", "", ""},
	{"varchar(50)", "null", "<null>", "", ""},
	{"varchar(50)", "' it''s \"x\" \\ '", " it's \"x\" \\ ", "", ""},
	{"varchar(50)", "char(1) + char(9) + char(10) + char(13) + char(127)", "\x01\t\n\r\x7f", "", ""},
	{"varchar(max)", "replicate(convert(varchar(max), 'x'), 10000)", strings.Repeat("x", 10000), "", ""},
	{"text", "'legacy  '", "legacy  ", "", ""},
	{"nchar(5)", "N'üab'", "üab  ", "", ""},
	{"nvarchar(50)", "N'🙂 👩‍👩‍👧‍👦 é'", "🙂 👩‍👩‍👧‍👦 é", "", ""},
	{"nvarchar(50)", "N'  a  '", "  a  ", "", ""},
	{"nvarchar(50)", "N'NULL'", "NULL", "", ""},
	{"nvarchar(50)", "N'a' + nchar(0) + N'b'", "a\x00b", refused, "'a'"}, // as far as quote goes
	{"nvarchar(max)", "replicate(convert(nvarchar(max), N'ü'), 9000)", strings.Repeat("ü", 9000), "", ""},
	{"ntext", "N'legacy ü'", "legacy ü", "", ""},
	{"dbo.Phone", "'+49 1'", "+49 1", "", ""},

	{"date", "'0001-01-01'", "0001-01-01", "", ""},
	{"date", "'2024-02-29'", "2024-02-29", "", ""},
	{"date", "'9999-12-31'", "9999-12-31", "", ""},
	{"time(7)", "'23:59:59.123456'", "23:59:59.123456", "", ""},
	{"time(7)", "'23:59:59.1234567'", "23:59:59.1234567", refused, ""},
	{"time(7)", "'00:00:00'", "00:00:00", "", ""},
	{"time(0)", "'01:02:03'", "01:02:03", "", ""},
	{"time(3)", "'01:02:03.4'", "01:02:03.4", "", ""},
	{"datetime", "'2024-02-29T12:34:56.997'", "2024-02-29 12:34:56.997", "", ""},
	{"datetime", "'1753-01-01T00:00:00'", "1753-01-01 00:00:00", "", ""},
	{"datetime", "'9999-12-31T23:59:59.993'", "9999-12-31 23:59:59.993", "", ""},
	{"smalldatetime", "'2079-06-06T23:59:00'", "2079-06-06 23:59:00", "", ""},
	{"datetime2(7)", "'0001-01-01'", "0001-01-01 00:00:00", "", ""},
	{"datetime2(7)", "'9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999", "", ""},
	{"datetime2(7)", "'2024-02-29 12:34:56.1234567'", "2024-02-29 12:34:56.1234567", refused, ""},
	{"datetime2(3)", "'2024-02-29 12:34:56.78'", "2024-02-29 12:34:56.78", "", ""},
	{"datetime2(0)", "'2024-02-29 12:34:56'", "2024-02-29 12:34:56", "", ""},
	{"datetimeoffset(7)", "'2024-02-29 12:34:56.789012 +05:30'", "2024-02-29 07:04:56.789012+00", "2024-02-29 12:34:56.789012+05:30", ""},
	{"datetimeoffset(7)", "'2024-02-29 12:34:56.1234567 -14:00'", "2024-03-01 02:34:56.1234567+00", refused, ""},
	{"datetimeoffset(0)", "'9999-12-31 23:59:59 +00:00'", "9999-12-31 23:59:59+00", "10000-01-01 05:29:59+05:30", ""},
	{"datetimeoffset(0)", "null", "<null>", "", ""},

	{"uniqueidentifier", "'0F0E0D0C-0B0A-0908-0706-050403020100'", "0f0e0d0c-0b0a-0908-0706-050403020100", "", ""},
	{"uniqueidentifier", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001", "", ""},
	{"binary(4)", "0x00ff", "\x00\xff\x00\x00", `\x00ff0000`, "X'00FF0000'"},
	{"varbinary(100)", "0x", "", `\x`, "X''"},
	{"varbinary(100)", "0x00ff27", "\x00\xff'", `\x00ff27`, "X'00FF27'"},
	{"varbinary(max)", "0x6100", "a\x00", `\x6100`, "X'6100'"},
	{"varbinary(max)", "null", "<null>", "", ""},
	{"image", "0x61", "a", `\x61`, "X'61'"},
	{"xml", `N'<a b="c">ü &amp; x</a>'`, `<a b="c">ü &amp; x</a>`, "", ""},
	{"xml", "null", "<null>", "", ""},
	{"hierarchyid", "'/1/2.1/'", "/1/2.1/", "", ""},
	{"sql_variant", "convert(int, 7)", "7", "", ""},
	{"sql_variant", "convert(nvarchar(9), N'ü ')", "ü ", "", ""},
	{"sql_variant", "convert(varbinary(4), 0x00ff)", "00FF", "", ""},
	{"sql_variant", "null", "<null>", "", ""},
}

// postgresAtSQLServer and sqliteAtSQLServer are what atSQLServer does not tell.
var postgresAtSQLServer = map[string]string{
	"real '0.1'":          "0.10000000149011612", // the driver's float64
	"real '3.4028235e38'": "3.4028234663852886e+38",
	"real '1e-45'":        refused,
	"double precision '4.9406564584124654e-324'": refused,
	"numeric(10,2) 1.1":                          "1.10",
	"numeric(10,2) -99999999.99":                 "-99999999.99",
	"numeric(3,-2) 12345":                        "12300",
	"numeric(3,5) 0.00123":                       "0.00123",
	"timestamptz(0) '2024-02-29 12:34:56.5+00'":  "2024-02-29T12:34:57Z",
}

var sqliteAtSQLServer = map[string]string{
	"real 5e-324":                refused,
	"text cast(x'ff61' as text)": refused,
	"json ''":                    "",
	"boolean 1":                  "true",
	"boolean 0":                  "false",
	"date '2023-02-29'":          refused,
	"xml '<a>'":                  refused,
}

// intoSQLServer are values on their way into columns of other types than the
// target would make.
var intoSQLServer = []struct{ typ, into, literal, neutral, want string }{
	{"integer", "tinyint", "255", "255", "255"},
	{"integer", "tinyint", "256", "256", refused},
	{"integer", "tinyint", "-1", "-1", refused},
	{"integer", "bit", "1", "1", "true"},
	{"integer", "bit", "2", "2", refused},
	{"integer", "nvarchar(2)", "10", "10", "10"},
	{"integer", "nvarchar(2)", "100", "100", refused},
	{"numeric", "int", "7.00", "7.00", "7"},
	{"numeric", "int", "7.5", "7.5", refused},
	{"numeric", "money", "1.2345", "1.2345", "1.2345"},
	{"numeric", "money", "1.23456", "1.23456", refused},
	{"numeric", "smallmoney", "214748.3648", "214748.3648", refused},
	{"numeric", "decimal(5,1)", "1.50", "1.50", "1.5"},
	{"numeric", "decimal(5,1)", "1.55", "1.55", refused},
	{"numeric", "decimal(5,1)", "12345", "12345", refused},
	{"numeric", "float", "0.5", "0.5", "0.5"},
	{"numeric", "float", "0.12345678901234567890", "0.12345678901234567890", refused},
	{"boolean", "int", "true", "true", "1"},
	{"boolean", "decimal(3,1)", "false", "false", "0.0"},
	{"boolean", "uniqueidentifier", "true", "true", refused},
	{"text", "nvarchar(3)", "'abc'", "abc", "abc"},
	{"text", "nvarchar(3)", "'abcd'", "abcd", refused},
	{"text", "nvarchar(3)", "'🙂🙂'", "🙂🙂", refused}, // two units each
	{"text", "varchar(10) collate Latin1_General_CI_AS", "'é'", "é", "é"},
	{"text", "varchar(10) collate Latin1_General_CI_AS", "'ł'", "ł", refused}, // not in its code page
	{"text", "uniqueidentifier", "'no'", "no", refused},
	{"text", "date", "'2024-02-29'", "2024-02-29", "2024-02-29T00:00:00Z"},
	{"text", "date", "'29.02.2024'", "29.02.2024", refused},
	{"bytea", "varbinary(2)", `'\x00ff'`, "\x00\xff", "\x00\xff"},
	{"bytea", "varbinary(2)", `'\x00ff00'`, "\x00\xff\x00", refused},
	{"bytea", "binary(4)", `'\x00ff'`, "\x00\xff", refused}, // it would be padded
	{"bytea", "nvarchar(10)", `'\x00ff'`, "\x00\xff", `\x00ff`},
	{"timestamp", "datetime2(3)", "'2024-02-29 12:34:56.789'", "2024-02-29 12:34:56.789", "2024-02-29T12:34:56.789Z"},
	{"timestamp", "datetime2(3)", "'2024-02-29 12:34:56.7891'", "2024-02-29 12:34:56.7891", refused},
	{"timestamp", "datetime", "'2024-02-29 12:34:56.997'", "2024-02-29 12:34:56.997", "2024-02-29T12:34:56.997Z"},
	{"timestamp", "datetime", "'2024-02-29 12:34:56.998'", "2024-02-29 12:34:56.998", refused},
	{"timestamp", "datetime", "'1752-12-31 00:00:00'", "1752-12-31 00:00:00", refused},
	{"timestamp", "smalldatetime", "'2024-02-29 12:34:00'", "2024-02-29 12:34:00", "2024-02-29T12:34:00Z"},
	{"timestamp", "smalldatetime", "'2024-02-29 12:34:56'", "2024-02-29 12:34:56", refused},
	{"timestamp", "date", "'2024-02-29 00:00:00'", "2024-02-29 00:00:00", "2024-02-29T00:00:00Z"},
	{"timestamp", "date", "'2024-02-29 12:34:56'", "2024-02-29 12:34:56", refused},
	{"time", "time(0)", "'12:34:56.5'", "12:34:56.5", refused},
	{"timestamptz", "datetime2(7)", "'2024-02-29 12:34:56+00'", "2024-02-29 12:34:56+00", "2024-02-29T12:34:56Z"},
}
