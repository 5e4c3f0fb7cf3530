// Package sql holds every .sql file of weir, by engine. Dialects alone import
// it, as weirsql.
package sql

import "embed"

// FS holds <engine>/migrations, <engine>/tagging, <engine>/queue, <engine>/verify and
// <engine>/apply.
//
//go:embed postgres sqlite sqlserver
var FS embed.FS
