// Package sqlite is weir's dialect of SQLite, as source and as target.
package sqlite
