-- GI_Fold(@Limit, @Folded OUTPUT): moves up to @Limit tags from the inbox into the queues that want them, by the rules of tagging.
-- @Folded is the number of inbox rows that are gone. 0: nothing is left, another session folds, or all the rest is locked.
--
-- Locks: one session folds at a time (the row of GI_Folding, not waited for). Queue rows that others hold stay in the inbox. What
-- only waiting can tell (an insert that meets another transaction's row, a base row that is being written where versions
-- are not kept) is waited for 40 ms, far below the deadlock monitor's interval, at the lowest deadlock priority; then
-- fewer tags are tried, and a tag that cannot be folded alone is passed over.
-- It runs in transactions of its own.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_Fold]
    @Limit  int,
    @Folded int = 0 OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    IF @@TRANCOUNT > 0
        THROW 51005, N'weir: GI_Fold must run outside a transaction', 1;
    IF EXISTS (SELECT 1 FROM sys.dm_exec_sessions s WHERE s.session_id = @@SPID AND s.transaction_isolation_level <> 2)
        THROW 51005, N'weir: GI_Fold must run at READ COMMITTED', 1;
    DECLARE @take int, @taken int, @busy int, @skips int, @after uniqueidentifier, @first uniqueidentifier, @alone bit,
        @capture int, @queue varchar(30), @procedure nvarchar(300), @sql nvarchar(max), @number int;
    DECLARE @broken TABLE (CaptureID int NOT NULL PRIMARY KEY);
    CREATE TABLE #GI_Picked (TagGUID uniqueidentifier NOT NULL PRIMARY KEY CLUSTERED);
    CREATE TABLE #GI_Taken (
        TagGUID       uniqueidentifier NOT NULL,
        InstanceGUID  uniqueidentifier NOT NULL,
        ChangeType    varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        ChangedOn     datetime2(7)     NOT NULL,
        ConceptGUID   uniqueidentifier NULL,
        OldPrimaryKey nvarchar(4000)   COLLATE DATABASE_DEFAULT NULL,
        CaptureID     int              NULL
    );
    CREATE TABLE #GI_Fold (
        InstanceGUID  uniqueidentifier NOT NULL,
        ChangeType    varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        ChangedOn     datetime2(7)     NOT NULL,
        ConceptGUID   uniqueidentifier NULL,
        OldPrimaryKey nvarchar(4000)   COLLATE DATABASE_DEFAULT NULL,
        CaptureID     int              NULL,
        PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
    );
    CREATE TABLE #GI_Tags (
        InstanceGUID  uniqueidentifier NOT NULL,
        ChangeType    varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        ChangedOn     datetime2(7)     NOT NULL,
        ConceptGUID   uniqueidentifier NULL,
        OldPrimaryKey nvarchar(4000)   COLLATE DATABASE_DEFAULT NULL,
        CaptureID     int              NULL,
        PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
    );
    CREATE TABLE #GI_Routes (
        InstanceGUID uniqueidentifier NOT NULL,
        ChangeType   varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        Queue        varchar(30)      COLLATE DATABASE_DEFAULT NOT NULL,
        PRIMARY KEY CLUSTERED (Queue, InstanceGUID, ChangeType)
    );
    CREATE TABLE #GI_Locked (
        InstanceGUID uniqueidentifier NOT NULL,
        ChangeType   varchar(40)      COLLATE DATABASE_DEFAULT NOT NULL,
        PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType)
    );
    CREATE TABLE #GI_Busy (InstanceGUID uniqueidentifier NOT NULL);

    SET LOCK_TIMEOUT 40;
    SET @Folded = 0;
    SET @take = @Limit;
    SET @skips = 0;
    WHILE 1 = 1
    BEGIN
        SET @capture = NULL;
        SET @first = NULL;
        SET @busy = 0;
        SET @alone = 0;
        BEGIN TRY
            BEGIN TRANSACTION;
            UPDATE {{.Schema}}.[GI_Folding] WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) SET Folds = Folds + 1;
            IF @@ROWCOUNT = 0
            BEGIN
                ROLLBACK TRANSACTION;
                RETURN 0;
            END;
            SET @alone = 1;
            DELETE FROM #GI_Picked;
            DELETE FROM #GI_Taken;
            DELETE FROM #GI_Fold;
            DELETE FROM #GI_Routes;
            INSERT INTO #GI_Picked (TagGUID)
            SELECT TOP (@take) i.TagGUID
            FROM {{.Schema}}.[GI_Inbox] i WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
            WHERE @after IS NULL OR i.TagGUID > @after
            ORDER BY i.TagGUID;
            SELECT TOP (1) @first = k.TagGUID FROM #GI_Picked k ORDER BY k.TagGUID;
            INSERT INTO #GI_Taken (TagGUID, InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
            SELECT i.TagGUID, i.InstanceGUID, i.ChangeType, i.ChangedOn, i.ConceptGUID, i.OldPrimaryKey, i.CaptureID
            FROM #GI_Picked k
            JOIN {{.Schema}}.[GI_Inbox] i WITH (ROWLOCK, READCOMMITTEDLOCK) ON i.TagGUID = k.TagGUID
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            DELETE i
            FROM #GI_Picked k
            JOIN {{.Schema}}.[GI_Inbox] i WITH (ROWLOCK, READCOMMITTEDLOCK) ON i.TagGUID = k.TagGUID
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @taken = (SELECT COUNT(*) FROM #GI_Taken);

            -- The latest tag of each instance; the two types of a row's own are one.
            INSERT INTO #GI_Fold (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
            SELECT l.InstanceGUID, l.ChangeType, l.ChangedOn, l.ConceptGUID, l.OldPrimaryKey, l.CaptureID
            FROM (
                SELECT t.*, ROW_NUMBER() OVER (
                    PARTITION BY t.InstanceGUID, CASE WHEN t.ChangeType IN ('Instance Inserted', 'Instance Deleted') THEN '' ELSE t.ChangeType END
                    ORDER BY t.ChangedOn DESC, t.TagGUID DESC) AS n
                FROM #GI_Taken t
            ) l
            WHERE l.n = 1;

            -- Inserted or deleted? The row's presence decides, where a capture knows the table.
            SET @capture = (SELECT MIN(f.CaptureID) FROM #GI_Fold f WHERE f.CaptureID NOT IN (SELECT b.CaptureID FROM @broken b));
            WHILE @capture IS NOT NULL
            BEGIN
                SET @procedure = N'{{.SchemaText}}.[GI_Capture_' + CONVERT(nvarchar(12), @capture) + N'_Present]';
                SET @sql = N'EXEC ' + @procedure;
                IF OBJECT_ID(@procedure) IS NOT NULL
                    EXEC sys.sp_executesql @sql;
                SET @capture = (SELECT MIN(f.CaptureID) FROM #GI_Fold f WHERE f.CaptureID > @capture AND f.CaptureID NOT IN (SELECT b.CaptureID FROM @broken b));
            END;

            -- A capture knows its queues; a tag of other code goes to those of the captures of its concept, and to the
            -- default queue where there is none.
            INSERT INTO #GI_Routes (InstanceGUID, ChangeType, Queue)
            SELECT f.InstanceGUID, f.ChangeType, cq.Queue
            FROM #GI_Fold f
            JOIN {{.Schema}}.[GI_CaptureQueues] cq ON cq.CaptureID = f.CaptureID;
            INSERT INTO #GI_Routes (InstanceGUID, ChangeType, Queue)
            SELECT DISTINCT f.InstanceGUID, f.ChangeType, cq.Queue
            FROM #GI_Fold f
            JOIN {{.Schema}}.[GI_Captures] c ON (c.ConceptGUID = f.ConceptGUID OR c.ConceptGUID IS NULL)
                AND c.ChangeType = CASE WHEN f.ChangeType IN ('Instance Inserted', 'Instance Deleted') THEN '' ELSE f.ChangeType END
            JOIN {{.Schema}}.[GI_CaptureQueues] cq ON cq.CaptureID = c.CaptureID
            WHERE NOT EXISTS (SELECT 1 FROM {{.Schema}}.[GI_CaptureQueues] own WHERE own.CaptureID = f.CaptureID);
            INSERT INTO #GI_Routes (InstanceGUID, ChangeType, Queue)
            SELECT f.InstanceGUID, f.ChangeType, 'default'
            FROM #GI_Fold f
            WHERE NOT EXISTS (SELECT 1 FROM #GI_Routes r WHERE r.InstanceGUID = f.InstanceGUID AND r.ChangeType = f.ChangeType);

            SET @queue = (SELECT MIN(r.Queue) FROM #GI_Routes r);
            WHILE @queue IS NOT NULL
            BEGIN
                DELETE FROM #GI_Tags;
                DELETE FROM #GI_Locked;
                DELETE FROM #GI_Busy;
                INSERT INTO #GI_Tags (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
                SELECT f.InstanceGUID, f.ChangeType, f.ChangedOn, f.ConceptGUID, f.OldPrimaryKey, f.CaptureID
                FROM #GI_Fold f
                JOIN #GI_Routes r ON r.InstanceGUID = f.InstanceGUID AND r.ChangeType = f.ChangeType AND r.Queue = @queue;

                -- What others hold goes back to the inbox. The uncommitted are looked at only to know that they are held.
                SET @sql = REPLACE(N'
                INSERT INTO #GI_Locked (InstanceGUID, ChangeType)
                SELECT q.InstanceGUID, q.ChangeType
                FROM #GI_Tags t
                JOIN {queue} q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) ON q.InstanceGUID = t.InstanceGUID
                    AND (q.ChangeType = t.ChangeType OR q.ChangeType IN (''Instance Inserted'', ''Instance Deleted'') AND t.ChangeType IN (''Instance Inserted'', ''Instance Deleted''))
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
                INSERT INTO #GI_Busy (InstanceGUID)
                SELECT DISTINCT q.InstanceGUID
                FROM #GI_Tags t
                JOIN {queue} q WITH (NOLOCK) ON q.InstanceGUID = t.InstanceGUID
                    AND (q.ChangeType = t.ChangeType OR q.ChangeType IN (''Instance Inserted'', ''Instance Deleted'') AND t.ChangeType IN (''Instance Inserted'', ''Instance Deleted''))
                WHERE NOT EXISTS (SELECT 1 FROM #GI_Locked l WHERE l.InstanceGUID = q.InstanceGUID AND l.ChangeType = q.ChangeType)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);',
                    N'{queue}', N'{{.SchemaText}}.' + QUOTENAME(CASE @queue WHEN 'default' THEN N'InstanceChanges' ELSE N'InstanceChanges_' + @queue END));
                EXEC sys.sp_executesql @sql;
                IF EXISTS (SELECT 1 FROM #GI_Busy)
                BEGIN
                    INSERT INTO {{.Schema}}.[GI_Inbox] (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
                    SELECT t.InstanceGUID, t.ChangeType, t.ChangedOn, t.ConceptGUID, t.OldPrimaryKey, t.CaptureID
                    FROM #GI_Tags t
                    WHERE t.InstanceGUID IN (SELECT b.InstanceGUID FROM #GI_Busy b);
                    SET @busy = @busy + (SELECT COUNT(*) FROM #GI_Tags t WHERE t.InstanceGUID IN (SELECT b.InstanceGUID FROM #GI_Busy b));
                    DELETE FROM #GI_Tags WHERE InstanceGUID IN (SELECT b.InstanceGUID FROM #GI_Busy b);
                END;
                SET @procedure = N'{{.SchemaText}}.[GI_Tag_' + @queue + N']';
                SET @sql = N'EXEC ' + @procedure;
                IF EXISTS (SELECT 1 FROM #GI_Tags)
                    EXEC sys.sp_executesql @sql;
                SET @queue = (SELECT MIN(r.Queue) FROM #GI_Routes r WHERE r.Queue > @queue);
            END;
            COMMIT TRANSACTION;
            SET @Folded = CASE WHEN @taken > @busy THEN @taken - @busy ELSE 0 END;
            RETURN 0;
        END TRY
        BEGIN CATCH
            SET @number = ERROR_NUMBER();
            IF @number NOT IN (1222, 1205) AND @capture IS NULL
            BEGIN
                IF XACT_STATE() <> 0
                    ROLLBACK TRANSACTION;
                THROW;
            END;
            IF XACT_STATE() <> 0
                ROLLBACK TRANSACTION;
            IF @alone = 0
                RETURN 0;
            IF @number NOT IN (1222, 1205)
                -- The table is not as captured: the latest tag stands, and the read says what is wrong.
                INSERT INTO @broken (CaptureID) VALUES (@capture);
            ELSE IF @take > 1
                -- Of what is there, not of what was asked for.
                SET @take = CASE WHEN (CASE WHEN @taken < @take THEN @taken ELSE @take END) > 4 THEN (CASE WHEN @taken < @take THEN @taken ELSE @take END) / 4 ELSE 1 END;
            ELSE
            BEGIN
                SET @skips = @skips + 1;
                IF @skips > 16 OR @first IS NULL
                    RETURN 0;
                SET @after = @first;
                SET @take = CASE WHEN @Limit > 16 THEN 16 ELSE @Limit END;
            END;
        END CATCH;
    END;
END
