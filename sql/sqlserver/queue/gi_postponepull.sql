-- GI_PostponePull(@PullGUID, @What): takes changes out of a live pull, all of them or none, and keeps them for later.
-- @What, a row a change: its instance and type; DelayMS until it may be claimed again; Align rounds that time up to a multiple
--   of the delay; Dead makes it a dead letter (NotBefore 9999-12-31); Error (NULL: not at fault, no attempt counted).
-- Raises 51001 when the pull is not live.
-- Locks: the pull's row, then the changes in key order. It waits for a user's transaction a moment only (error 1222 then): a
-- change that cannot leave the pull surely must not be passed over, or a settle would delete it unshipped.
-- A change tagged anew meanwhile is no longer the pull's; nothing is done for it.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_PostponePull]
    @PullGUID uniqueidentifier,
    @What     {{.Schema}}.[GI_Postponements] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET LOCK_TIMEOUT 400;
    DECLARE @queue varchar(30), @now datetime2(7), @nowMS bigint, @sql nvarchar(max);
    SET @now = SYSUTCDATETIME();
    SET @nowMS = CONVERT(bigint, DATEDIFF(day, '20000101', @now)) * 86400000 + DATEDIFF(millisecond, CONVERT(datetime2(7), CONVERT(date, @now)), @now);
    CREATE TABLE #GI_Later (
        InstanceGUID uniqueidentifier NOT NULL,
        ChangeType   varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        NotBefore    datetime2(7)     NULL,
        Error        nvarchar(max)    COLLATE DATABASE_DEFAULT NULL,
        Done         bit              NOT NULL,
        PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
    );
    INSERT INTO #GI_Later (InstanceGUID, ChangeType, NotBefore, Error, Done)
    SELECT w.InstanceGUID, w.ChangeType,
           CASE
               WHEN w.Dead = 1 THEN CONVERT(datetime2(7), '9999-12-31')
               WHEN w.DelayMS <= 0 THEN NULL
               ELSE DATEADD(millisecond, w.DueMS % 86400000, DATEADD(day, w.DueMS / 86400000, CONVERT(datetime2(7), '2000-01-01')))
           END,
           w.Error, 0
    FROM (
        SELECT a.*, CASE WHEN a.DelayMS <= 0 THEN 0 WHEN a.Align = 1 THEN (@nowMS / a.DelayMS + 1) * a.DelayMS ELSE @nowMS + a.DelayMS END AS DueMS
        FROM @What a
    ) w;

    BEGIN TRANSACTION;
    UPDATE {{.Schema}}.[GI_Pulls] WITH (ROWLOCK, READCOMMITTEDLOCK) SET State = State WHERE PullGUID = @PullGUID AND State = 'claimed';
    SELECT @queue = p.Queue FROM {{.Schema}}.[GI_Pulls] p WITH (READCOMMITTEDLOCK) WHERE p.PullGUID = @PullGUID AND p.State = 'claimed';
    IF @queue IS NULL
        THROW 51001, N'weir: the pull is not live', 1;
    SET @sql = REPLACE(N'
    UPDATE l
    SET Done = 1
    FROM #GI_Later l
    JOIN {queue} q WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK) ON q.InstanceGUID = l.InstanceGUID AND q.ChangeType = l.ChangeType
    WHERE q.PullGUID = @pull
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    UPDATE q
    SET PullGUID  = NULL,
        Attempts  = CASE WHEN l.Error IS NULL THEN q.Attempts ELSE COALESCE(q.Attempts, 0) + 1 END,
        NotBefore = l.NotBefore
    FROM #GI_Later l
    JOIN {queue} q WITH (ROWLOCK, READCOMMITTEDLOCK) ON q.InstanceGUID = l.InstanceGUID AND q.ChangeType = l.ChangeType
    WHERE q.PullGUID = @pull
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    ', N'{queue}', N'{{.SchemaText}}.' + QUOTENAME(CASE @queue WHEN 'default' THEN N'InstanceChanges' ELSE N'InstanceChanges_' + @queue END));
    EXEC sys.sp_executesql @sql, N'@pull uniqueidentifier', @pull = @PullGUID;

    UPDATE f
    SET FailedOn = @now, LastError = l.Error
    FROM #GI_Later l
    JOIN {{.Schema}}.[GI_Failures] f WITH (ROWLOCK) ON f.Queue = @queue AND f.InstanceGUID = l.InstanceGUID AND f.ChangeType = l.ChangeType
    WHERE l.Done = 1 AND l.Error IS NOT NULL;
    INSERT INTO {{.Schema}}.[GI_Failures] (Queue, InstanceGUID, ChangeType, FailedOn, LastError)
    SELECT @queue, l.InstanceGUID, l.ChangeType, @now, l.Error
    FROM #GI_Later l
    WHERE l.Done = 1 AND l.Error IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM {{.Schema}}.[GI_Failures] f WHERE f.Queue = @queue AND f.InstanceGUID = l.InstanceGUID AND f.ChangeType = l.ChangeType);
    COMMIT TRANSACTION;
    RETURN 0;
END
