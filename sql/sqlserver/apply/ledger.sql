-- The ledger: which pulls committed here, and which never may. Made once, in the schema of the target's tables.
-- Revoked rows are kept: they bar a puller that was only paused.
IF OBJECT_ID({{.Ledger}}, 'U') IS NULL
    CREATE TABLE {{.Schema}}.[weir_ledger] (
        pull_guid  uniqueidentifier NOT NULL PRIMARY KEY,
        state      varchar(10)      NOT NULL CHECK (state IN ('committed', 'revoked')),
        decided_on datetime2(7)     NOT NULL DEFAULT SYSUTCDATETIME()
    );
-- Who this ledger is: a pull is recovered into the ledger that it was claimed for, or not at all.
IF OBJECT_ID({{.Identity}}, 'U') IS NULL
    CREATE TABLE {{.Schema}}.[weir_ledger_identity] (
        only_row int              NOT NULL DEFAULT (1) PRIMARY KEY,
        ledger   uniqueidentifier NOT NULL DEFAULT (NEWID()),
        CHECK (only_row = 1)
    );
