-- GI_BeginPull(...): leases up to @Limit changes of a queue to a new pull, and returns them: InstanceGUID, ChangeType,
-- ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID, Attempts, and the pull's LeaseUntil; each (instance, type) once, in no
-- order. No rows: nothing can be claimed now, and no pull was made.
-- Parameters: @PullGUID a new GUID of the caller's; @Name the pull's name; @Ledger the identity of the target's ledger; @LeaseMS
--   on this server's clock; @Wanted filters (a row a capture, concept or change type; none: all); @From skips changes
--   tagged before it.
--
-- Locks: an update of the queue's row in GI_Queues, so that claims of a queue come one after another and each sees what the
-- last one took; then the claimed rows, passing over what a user's transaction holds. The statement that picks starts after
-- the first lock is had. It reads with locks where versions could be old: the candidates and the live pulls. The other
-- type of the same instance is read as it stands, committed or not, for a user's transaction that holds it may last: what
-- appears or is tagged anew there holds the change back until it is committed, which is late at worst; what vanishes is
-- settled or released, and so is out of flight at the target already, or is tagged together with the change itself, whose
-- row is locked and passed over then.
-- It runs in a transaction of its own, or in that of INSERT ... EXEC.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_BeginPull]
    @Queue    varchar(30)      = 'default',
    @PullGUID uniqueidentifier,
    @Name     nvarchar(200)    = N'by hand',
    @Puller   nvarchar(200)    = N'',
    @Ledger   uniqueidentifier = '00000000-0000-0000-0000-000000000000',
    @Limit    int              = 5000,
    @LeaseMS  bigint           = 300000,
    @From     datetime2(7)     = NULL,
    @Wanted   {{.Schema}}.[GI_Wanted] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET LOCK_TIMEOUT 5000; -- it waits for other claims only, and holds nothing then
    IF EXISTS (SELECT 1 FROM sys.dm_exec_sessions s WHERE s.session_id = @@SPID AND s.transaction_isolation_level <> 2)
        THROW 51005, N'weir: GI_BeginPull must run at READ COMMITTED', 1;

    DECLARE @sql nvarchar(max), @now datetime2(7), @rows int, @captures bit, @concepts bit, @types bit, @until datetime2(7);
    CREATE TABLE #GI_Claimed (
        InstanceGUID  uniqueidentifier NOT NULL,
        ChangeType    varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        ChangedOn     datetime2(7)     NOT NULL,
        ConceptGUID   uniqueidentifier NULL,
        OldPrimaryKey nvarchar(4000)   COLLATE DATABASE_DEFAULT NULL,
        CaptureID     int              NULL,
        Attempts      int              NULL
    );
    CREATE TABLE #GI_Picked (
        InstanceGUID  uniqueidentifier NOT NULL,
        ChangeType    varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
    );
    SELECT CaptureID, ConceptGUID, ChangeType INTO #GI_Wanted FROM @Wanted;
    SET @captures = CASE WHEN EXISTS (SELECT 1 FROM @Wanted w WHERE w.CaptureID IS NOT NULL) THEN 1 ELSE 0 END;
    SET @concepts = CASE WHEN EXISTS (SELECT 1 FROM @Wanted w WHERE w.ConceptGUID IS NOT NULL) THEN 1 ELSE 0 END;
    SET @types    = CASE WHEN EXISTS (SELECT 1 FROM @Wanted w WHERE w.ChangeType IS NOT NULL) THEN 1 ELSE 0 END;

    BEGIN TRANSACTION;
    UPDATE {{.Schema}}.[GI_Queues] WITH (ROWLOCK, READCOMMITTEDLOCK) SET Claims = Claims + 1 WHERE Queue = @Queue;
    IF @@ROWCOUNT = 0
        THROW 51006, N'weir: there is no such queue. weir triggers apply makes the queues that the configuration names', 1;
    SET LOCK_TIMEOUT 400;
    SET @now = SYSUTCDATETIME();
    SET @sql = N'
    INSERT INTO #GI_Picked (InstanceGUID, ChangeType)
    SELECT TOP (@limit) q.InstanceGUID, q.ChangeType
    FROM {queue} q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE q.PullGUID IS NULL
      AND (@from IS NULL OR q.ChangedOn >= @from)
      AND (q.NotBefore IS NULL OR q.NotBefore <= @now)'
      + CASE WHEN @captures = 1 THEN N'
      AND (q.CaptureID IN (SELECT w.CaptureID FROM #GI_Wanted w)
           OR q.CaptureID IS NULL AND EXISTS (
                SELECT 1
                FROM {{.SchemaText}}.[GI_Captures] c
                JOIN #GI_Wanted w ON w.CaptureID = c.CaptureID
                WHERE c.ConceptGUID = q.ConceptGUID OR c.ConceptGUID IS NULL))' ELSE N'' END
      + CASE WHEN @concepts = 1 THEN N'
      AND q.ConceptGUID IN (SELECT w.ConceptGUID FROM #GI_Wanted w)' ELSE N'' END
      + CASE WHEN @types = 1 THEN N'
      AND q.ChangeType IN (SELECT w.ChangeType FROM #GI_Wanted w)' ELSE N'' END + N'
      AND (q.WaitsForPullGUID IS NULL OR NOT EXISTS (
                SELECT 1
                FROM {{.SchemaText}}.[GI_Pulls] p WITH (READCOMMITTEDLOCK)
                WHERE p.PullGUID = q.WaitsForPullGUID AND p.State = ''claimed''))
      -- Both types of one row can be here at once, when other code tags it, or a fold and a user do in the same moment.
      -- They go one after the other: what is in flight, in this version or an earlier one, or older and just as
      -- claimable, holds the other back.
      AND NOT EXISTS (
                SELECT 1
                FROM {queue} s WITH (NOLOCK)
                WHERE s.InstanceGUID = q.InstanceGUID
                  AND s.ChangeType = CASE q.ChangeType WHEN ''Instance Inserted'' THEN ''Instance Deleted'' WHEN ''Instance Deleted'' THEN ''Instance Inserted'' END
                  AND (EXISTS (
                           SELECT 1
                           FROM {{.SchemaText}}.[GI_Pulls] p WITH (READCOMMITTEDLOCK)
                           WHERE p.PullGUID IN (s.PullGUID, s.WaitsForPullGUID) AND p.State = ''claimed'')
                       OR s.PullGUID IS NULL
                          AND (s.ChangedOn < q.ChangedOn OR s.ChangedOn = q.ChangedOn AND s.ChangeType < q.ChangeType)
                          AND (s.NotBefore IS NULL OR s.NotBefore <= @now)'
      + CASE WHEN @types = 1 THEN N'
                          AND s.ChangeType IN (SELECT w.ChangeType FROM #GI_Wanted w)' ELSE N'' END + N'))
    ORDER BY q.ChangedOn
    OPTION (LOOP JOIN, MAXDOP 1);

    UPDATE q
    SET PullGUID = @pull, WaitsForPullGUID = NULL
    FROM #GI_Picked k
    JOIN {queue} q WITH (ROWLOCK, READCOMMITTEDLOCK) ON q.InstanceGUID = k.InstanceGUID AND q.ChangeType = k.ChangeType
    WHERE q.PullGUID IS NULL
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO #GI_Claimed (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID, Attempts)
    SELECT q.InstanceGUID, q.ChangeType, q.ChangedOn, q.ConceptGUID, q.OldPrimaryKey, q.CaptureID, COALESCE(q.Attempts, 0)
    FROM #GI_Picked k
    JOIN {queue} q WITH (ROWLOCK, READCOMMITTEDLOCK) ON q.InstanceGUID = k.InstanceGUID AND q.ChangeType = k.ChangeType
    WHERE q.PullGUID = @pull
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);';
    SET @sql = REPLACE(@sql, N'{queue}', N'{{.SchemaText}}.' + QUOTENAME(CASE @Queue WHEN 'default' THEN N'InstanceChanges' ELSE N'InstanceChanges_' + @Queue END));
    EXEC sys.sp_executesql @sql, N'@limit int, @from datetime2(7), @now datetime2(7), @pull uniqueidentifier',
        @limit = @Limit, @from = @From, @now = @now, @pull = @PullGUID;
    SET @rows = (SELECT COUNT(*) FROM #GI_Claimed);
    SET @until = DATEADD(millisecond, @LeaseMS % 86400000, DATEADD(day, @LeaseMS / 86400000, @now));
    IF @rows > 0
        INSERT INTO {{.Schema}}.[GI_Pulls] (PullGUID, Name, Queue, Puller, Ledger, State, ClaimedOn, LeaseUntil, [Rows])
        VALUES (@PullGUID, @Name, @Queue, @Puller, @Ledger, 'claimed', @now, @until, @rows);
    COMMIT TRANSACTION;

    SELECT c.InstanceGUID, c.ChangeType, c.ChangedOn, c.ConceptGUID, c.OldPrimaryKey, c.CaptureID, c.Attempts, @until AS LeaseUntil
    FROM #GI_Claimed c;
END
