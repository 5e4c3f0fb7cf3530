-- weir's own tables. The queue may be there already, as a site's own table with the six columns: it is kept with its
-- rows, its keys and what else belongs to it, and gets the columns that weir needs beside them.
-- One batch and one transaction. No IDENTITY anywhere: @@IDENTITY belongs to the application. No filtered index and no
-- index on a computed column: sessions with other SET options write these tables.
SET XACT_ABORT ON;
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;
BEGIN TRANSACTION;

IF OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]', N'U') IS NULL
BEGIN
    CREATE TABLE {{.Schema}}.[InstanceChanges] (
        InstanceGUID     uniqueidentifier NOT NULL,
        ChangeType       varchar(40)      NOT NULL,
        ChangedOn        datetime2(7)     NOT NULL,
        PullGUID         uniqueidentifier NULL,
        ConceptGUID      uniqueidentifier NULL,
        OldPrimaryKey    varchar(500)     NULL,
        CONSTRAINT [PK_InstanceChanges] PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
    ALTER TABLE {{.Schema}}.[InstanceChanges] SET (LOCK_ESCALATION = DISABLE);
    -- Tells weir's own table from a site's.
    EXEC sys.sp_addextendedproperty @name = N'weir', @value = N'made by weir', @level0type = N'SCHEMA', @level0name = N'{{.SchemaName}}',
        @level1type = N'TABLE', @level1name = N'InstanceChanges';
END
ELSE
BEGIN
    DECLARE @differs nvarchar(2000);
    SET @differs = (
        SELECT STRING_AGG(CONVERT(nvarchar(max), w.name + CASE WHEN c.name IS NULL THEN N' is missing' ELSE N' is ' + t.name
                   + CASE WHEN t.name IN (N'char', N'varchar') THEN N'(' + CONVERT(nvarchar(5), c.max_length) + N')'
                          WHEN t.name IN (N'nchar', N'nvarchar') THEN N'(' + CONVERT(nvarchar(5), c.max_length / 2) + N')'
                          WHEN t.name IN (N'time', N'datetime2', N'datetimeoffset') THEN N'(' + CONVERT(nvarchar(5), c.scale) + N')' ELSE N'' END
                   + CASE c.is_nullable WHEN 1 THEN N' null' ELSE N' not null' END + N' and must be ' + w.type END), N'; ')
        FROM (
            SELECT N'InstanceGUID' AS name, N'uniqueidentifier not null' AS type
            UNION ALL SELECT N'ChangeType', N'varchar(40) not null'
            UNION ALL SELECT N'ChangedOn', N'datetime2(7) not null'
            UNION ALL SELECT N'PullGUID', N'uniqueidentifier null'
            UNION ALL SELECT N'ConceptGUID', N'uniqueidentifier null'
            UNION ALL SELECT N'OldPrimaryKey', N'varchar(500) null'
        ) w
        LEFT JOIN sys.columns c ON c.object_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND LOWER(c.name) = LOWER(w.name)
        LEFT JOIN sys.types t ON t.user_type_id = c.system_type_id
        WHERE c.name IS NULL
           OR c.is_nullable <> CASE WHEN w.type LIKE N'%not null' THEN 0 ELSE 1 END
           OR w.type LIKE N'uniqueidentifier%' AND t.name <> N'uniqueidentifier'
           -- Wider columns will do; a narrower OldPrimaryKey is widened for the keys that need it.
           OR w.type LIKE N'varchar%' AND t.name NOT IN (N'varchar', N'nvarchar')
           OR w.name = N'ChangeType' AND c.max_length BETWEEN 0 AND CASE t.name WHEN N'nvarchar' THEN 79 ELSE 39 END
           -- A later change is later by a microsecond at least.
           OR w.name = N'ChangedOn' AND (t.name <> N'datetime2' OR c.scale < 6));
    -- The key keeps an instance and type from being there twice.
    IF @differs IS NULL AND (
        SELECT STRING_AGG(CONVERT(nvarchar(max), LOWER(COL_NAME(k.object_id, k.column_id))), N', ')
        FROM sys.indexes i
        JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
        WHERE i.object_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND i.is_primary_key = 1 AND k.key_ordinal > 0
    ) NOT IN (N'instanceguid, changetype', N'changetype, instanceguid')
        SET @differs = N'its primary key is not (InstanceGUID, ChangeType)';
    IF @differs IS NULL AND NOT EXISTS (SELECT 1 FROM sys.indexes i WHERE i.object_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND i.is_primary_key = 1)
        SET @differs = N'it has no primary key, which must be (InstanceGUID, ChangeType)';
    IF @differs IS NOT NULL
    BEGIN
        SET @differs = N'weir: {{.SchemaText}}.[InstanceChanges] exists, and cannot be the queue as it is: ' + @differs;
        THROW 51002, @differs, 1;
    END;
END;

IF COL_LENGTH(N'{{.SchemaText}}.[InstanceChanges]', N'WaitsForPullGUID') IS NULL
    ALTER TABLE {{.Schema}}.[InstanceChanges] ADD WaitsForPullGUID uniqueidentifier NULL;
IF COL_LENGTH(N'{{.SchemaText}}.[InstanceChanges]', N'CaptureID') IS NULL
    ALTER TABLE {{.Schema}}.[InstanceChanges] ADD CaptureID int NULL;
IF COL_LENGTH(N'{{.SchemaText}}.[InstanceChanges]', N'Attempts') IS NULL
    ALTER TABLE {{.Schema}}.[InstanceChanges] ADD Attempts int NULL;
IF COL_LENGTH(N'{{.SchemaText}}.[InstanceChanges]', N'NotBefore') IS NULL
    ALTER TABLE {{.Schema}}.[InstanceChanges] ADD NotBefore datetime2(7) NULL;
-- The unclaimed in the order of ChangedOn, and the rows of a pull.
CREATE INDEX [IX_GI_InstanceChanges_Pull] ON {{.Schema}}.[InstanceChanges] (PullGUID, ChangedOn) WITH (ALLOW_PAGE_LOCKS = OFF);

-- One row a queue. An update of it orders the queue's claims.
CREATE TABLE {{.Schema}}.[GI_Queues] (
    Queue  varchar(30) NOT NULL,
    Claims bigint      NOT NULL CONSTRAINT [DF_GI_Queues_Claims] DEFAULT (0),
    CONSTRAINT [PK_GI_Queues] PRIMARY KEY CLUSTERED (Queue) WITH (ALLOW_PAGE_LOCKS = OFF)
);
INSERT INTO {{.Schema}}.[GI_Queues] (Queue) VALUES ('default');

-- One row: who holds it folds.
CREATE TABLE {{.Schema}}.[GI_Folding] (
    One   bit    NOT NULL CONSTRAINT [CK_GI_Folding_One] CHECK (One = 1),
    Folds bigint NOT NULL,
    CONSTRAINT [PK_GI_Folding] PRIMARY KEY CLUSTERED (One) WITH (ALLOW_PAGE_LOCKS = OFF)
);
INSERT INTO {{.Schema}}.[GI_Folding] (One, Folds) VALUES (1, 0);

-- Tags that are not coalesced yet. Each has a key of its own that only grows, so an append waits for nobody.
CREATE TABLE {{.Schema}}.[GI_Inbox] (
    TagGUID       uniqueidentifier NOT NULL CONSTRAINT [DF_GI_Inbox_TagGUID] DEFAULT (NEWSEQUENTIALID()),
    InstanceGUID  uniqueidentifier NOT NULL,
    ChangeType    varchar(40)      NOT NULL,
    ChangedOn     datetime2(7)     NOT NULL,
    ConceptGUID   uniqueidentifier NULL,
    OldPrimaryKey nvarchar(4000)   NULL,
    CaptureID     int              NULL,
    CONSTRAINT [PK_GI_Inbox] PRIMARY KEY CLUSTERED (TagGUID) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE {{.Schema}}.[GI_Inbox] SET (LOCK_ESCALATION = DISABLE);

-- One row a live pull. A settled or released pull stays while a queue row still names it.
CREATE TABLE {{.Schema}}.[GI_Pulls] (
    PullGUID   uniqueidentifier NOT NULL,
    Name       nvarchar(200)    NOT NULL,
    Queue      varchar(30)      NOT NULL,
    Puller     nvarchar(200)    NOT NULL,
    Ledger     uniqueidentifier NOT NULL,
    State      varchar(10)      NOT NULL CONSTRAINT [CK_GI_Pulls_State] CHECK (State IN ('claimed', 'settled', 'released')),
    ClaimedOn  datetime2(7)     NOT NULL,
    LeaseUntil datetime2(7)     NOT NULL,
    [Rows]     int              NOT NULL,
    CONSTRAINT [PK_GI_Pulls] PRIMARY KEY CLUSTERED (PullGUID) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE {{.Schema}}.[GI_Pulls] SET (LOCK_ESCALATION = DISABLE);

-- Why a change was postponed last. Attempts and the next attempt stand in the queue's row.
CREATE TABLE {{.Schema}}.[GI_Failures] (
    Queue        varchar(30)      NOT NULL,
    InstanceGUID uniqueidentifier NOT NULL,
    ChangeType   varchar(40)      NOT NULL,
    FailedOn     datetime2(7)     NOT NULL,
    LastError    nvarchar(max)    NOT NULL,
    CONSTRAINT [PK_GI_Failures] PRIMARY KEY CLUSTERED (Queue, InstanceGUID, ChangeType) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE {{.Schema}}.[GI_Failures] SET (LOCK_ESCALATION = DISABLE);

-- What is captured, as installed. TableID tells a table made again from the one captured. Lists are JSON arrays.
CREATE TABLE {{.Schema}}.[GI_Captures] (
    CaptureID      int              NOT NULL CONSTRAINT [CK_GI_Captures_CaptureID] CHECK (CaptureID > 0),
    TableSchema    nvarchar(128)    NOT NULL,
    TableName      nvarchar(128)    NOT NULL,
    TableID        int              NOT NULL,
    Kind           varchar(10)      NOT NULL CONSTRAINT [CK_GI_Captures_Kind] CHECK (Kind IN ('plain', 'instance', 'child')),
    ChangeType     varchar(40)      NOT NULL,
    ConceptGUID    uniqueidentifier NULL,
    ConceptColumn  nvarchar(128)    NULL,
    OldKeyColumn   nvarchar(128)    NULL,
    KeyColumns     nvarchar(max)    NOT NULL,
    KeyTypes       nvarchar(max)    NOT NULL,
    IsSet          bit              NOT NULL,
    RowKey         nvarchar(max)    NOT NULL,
    Tagging        varchar(10)      NOT NULL CONSTRAINT [CK_GI_Captures_Tagging] CHECK (Tagging IN ('at once', 'deferred')),
    CONSTRAINT [PK_GI_Captures] PRIMARY KEY CLUSTERED (CaptureID)
);

CREATE TABLE {{.Schema}}.[GI_CaptureQueues] (
    CaptureID int         NOT NULL CONSTRAINT [FK_GI_CaptureQueues_Captures] REFERENCES {{.Schema}}.[GI_Captures] (CaptureID) ON DELETE CASCADE,
    Queue     varchar(30) NOT NULL CONSTRAINT [FK_GI_CaptureQueues_Queues] REFERENCES {{.Schema}}.[GI_Queues] (Queue),
    CONSTRAINT [PK_GI_CaptureQueues] PRIMARY KEY CLUSTERED (CaptureID, Queue)
);

-- How far each capture's backfill has come: LastKey is a JSON array of texts, in the order of the key.
CREATE TABLE {{.Schema}}.[GI_Backfills] (
    CaptureID int           NOT NULL,
    LastKey   nvarchar(max) NULL,
    Tagged    bigint        NOT NULL,
    StartedOn datetime2(7)  NOT NULL,
    DoneOn    datetime2(7)  NULL,
    CONSTRAINT [PK_GI_Backfills] PRIMARY KEY CLUSTERED (CaptureID)
);

-- What GI_LogEvent was told.
CREATE TABLE {{.Schema}}.[GI_Log] (
    LogGUID    uniqueidentifier NOT NULL CONSTRAINT [DF_GI_Log_LogGUID] DEFAULT (NEWSEQUENTIALID()),
    LoggedOn   datetime2(7)     NOT NULL,
    Object     nvarchar(300)    NOT NULL,
    Message    nvarchar(4000)   NOT NULL,
    ByLogin    nvarchar(128)    NULL,
    CONSTRAINT [PK_GI_Log] PRIMARY KEY CLUSTERED (LogGUID) WITH (ALLOW_PAGE_LOCKS = OFF)
);

-- Lists that the routines take.
CREATE TYPE {{.Schema}}.[GI_Tags] AS TABLE (
    InstanceGUID  uniqueidentifier NOT NULL,
    ConceptGUID   uniqueidentifier NULL,
    ChangeType    varchar(40)      NOT NULL,
    OldPrimaryKey nvarchar(4000)   NULL,
    PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
);
CREATE TYPE {{.Schema}}.[GI_Wanted] AS TABLE (
    CaptureID   int              NULL,
    ConceptGUID uniqueidentifier NULL,
    ChangeType  varchar(40)      NULL
);
CREATE TYPE {{.Schema}}.[GI_Postponements] AS TABLE (
    InstanceGUID uniqueidentifier NOT NULL,
    ChangeType   varchar(40)      NOT NULL,
    DelayMS      bigint           NOT NULL,
    Align        bit              NOT NULL,
    Dead         bit              NOT NULL,
    Error        nvarchar(max)    NULL,
    PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
);
CREATE TYPE {{.Schema}}.[GI_Keys] AS TABLE (
    Place int            NOT NULL PRIMARY KEY CLUSTERED,
    K1    nvarchar(4000) NULL,
    K2    nvarchar(4000) NULL,
    K3    nvarchar(4000) NULL,
    K4    nvarchar(4000) NULL,
    K5    nvarchar(4000) NULL,
    K6    nvarchar(4000) NULL,
    K7    nvarchar(4000) NULL,
    K8    nvarchar(4000) NULL
);

COMMIT TRANSACTION;
