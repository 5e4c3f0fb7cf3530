// Package postgres is weir's dialect of PostgreSQL 14 and later, as source and
// as target.
//
// As a source, weir's tables and routines live in a schema of their own
// ("weir"). A capture is one trigger function, attached by statement-level
// triggers to the table and to each of its partitions and inheritance children;
// a table that a subscription writes gets row-level triggers that are ENABLED
// ALWAYS, since logical replication fires no others. claim, settle, release,
// postpone, extend, expired, fold and gi_instance_changed are functions in that
// schema, for psql and any other client; this package calls the same ones.
//
// old_primary_key holds a key of one column as that value's text, and a key of
// several as a JSON array of texts. The text depends on the value alone:
// numerics without trailing zeros, character(n) without padding, bytea as
// hexadecimal digits, times in ISO 8601 and UTC.
//
// As a target, a shipment is one transaction: the ledger's row, deletes by key,
// a binary COPY into a temporary staging table, and one INSERT ... ON CONFLICT a
// table.
package postgres
