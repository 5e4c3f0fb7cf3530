// Package sqlserver is weir's dialect of SQL Server 2019 and later and of Azure
// SQL Database, as source and as target, through
// github.com/microsoft/go-mssqldb.
//
// As a target, a shipment is one transaction: the ledger's row, a bulk copy into
// temporary staging tables, and for each table a set-based delete, update and
// insert.
package sqlserver
