-- GI_CompletePull(@PullGUID, @Settled OUTPUT, @Done OUTPUT): the target committed the pull: deletes the changes that still
-- carry it. @Settled is how many; @Done is 1 where nothing here names the pull any more (then the ledger may forget it).
-- Locks: the pull's row; then its changes, passing over those that a user's transaction is tagging anew: if that rolls
-- back, the pull's row stays as settled and a later call finishes. May be called again, by anybody. Batches stay below
-- lock escalation, for a queue that is a site's own.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_CompletePull]
    @PullGUID uniqueidentifier,
    @Settled  int = 0 OUTPUT,
    @Done     bit = 0 OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET LOCK_TIMEOUT 400;
    DECLARE @queue varchar(30), @state varchar(10), @sql nvarchar(max), @gone int;
    CREATE TABLE #GI_Settled (
        InstanceGUID uniqueidentifier NOT NULL,
        ChangeType   varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL
    );
    CREATE TABLE #GI_Next (
        InstanceGUID uniqueidentifier NOT NULL,
        ChangeType   varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
    );
    SET @Settled = 0;
    SET @Done = 1;
    BEGIN TRANSACTION;
    UPDATE {{.Schema}}.[GI_Pulls] WITH (ROWLOCK, READCOMMITTEDLOCK) SET State = 'settled' WHERE PullGUID = @PullGUID AND State <> 'released';
    SELECT @queue = p.Queue, @state = p.State FROM {{.Schema}}.[GI_Pulls] p WITH (READCOMMITTEDLOCK) WHERE p.PullGUID = @PullGUID;
    IF @queue IS NULL
    BEGIN
        COMMIT TRANSACTION;
        RETURN 0;
    END;
    IF @state = 'released'
        THROW 51007, N'weir: the pull was released; it cannot be settled', 1;
    SET @sql = REPLACE(N'
    TRUNCATE TABLE #GI_Next;
    INSERT INTO #GI_Next (InstanceGUID, ChangeType)
    SELECT TOP (1000) q.InstanceGUID, q.ChangeType
    FROM {queue} q WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK)
    WHERE q.PullGUID = @pull;
    DELETE q
    FROM #GI_Next n
    JOIN {queue} q WITH (ROWLOCK, READCOMMITTEDLOCK) ON q.InstanceGUID = n.InstanceGUID AND q.ChangeType = n.ChangeType
    WHERE q.PullGUID = @pull
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    INSERT INTO #GI_Settled (InstanceGUID, ChangeType) SELECT n.InstanceGUID, n.ChangeType FROM #GI_Next n;',
        N'{queue}', N'{{.SchemaText}}.' + QUOTENAME(CASE @queue WHEN 'default' THEN N'InstanceChanges' ELSE N'InstanceChanges_' + @queue END));
    SET @gone = 1;
    WHILE @gone > 0
    BEGIN
        EXEC sys.sp_executesql @sql, N'@pull uniqueidentifier', @pull = @PullGUID;
        SET @gone = (SELECT COUNT(*) FROM #GI_Settled) - @Settled;
        SET @Settled = @Settled + @gone;
    END;
    -- The two types of a row's own are one; a child's failure is another pull's to forget.
    IF EXISTS (SELECT 1 FROM {{.Schema}}.[GI_Failures] f WHERE f.Queue = @queue)
        DELETE f
        FROM #GI_Settled g
        JOIN {{.Schema}}.[GI_Failures] f WITH (ROWLOCK) ON f.Queue = @queue AND f.InstanceGUID = g.InstanceGUID
            AND (f.ChangeType = g.ChangeType
                 OR f.ChangeType IN ('Instance Inserted', 'Instance Deleted') AND g.ChangeType IN ('Instance Inserted', 'Instance Deleted'));
    COMMIT TRANSACTION;
    EXEC {{.Schema}}.[GI_EndPull] @PullGUID, @queue, @Done OUTPUT;
    RETURN 0;
END
