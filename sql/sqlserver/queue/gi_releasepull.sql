-- GI_ReleasePull(@PullGUID): gives the pull's changes back at once. Only a pull that can no longer commit at its target may be
-- released. Locks as GI_CompletePull. May be called again, by anybody.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_ReleasePull]
    @PullGUID uniqueidentifier,
    @Done     bit = 0 OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET LOCK_TIMEOUT 400;
    DECLARE @queue varchar(30), @state varchar(10), @sql nvarchar(max), @gone int;
    SET @Done = 1;
    BEGIN TRANSACTION;
    UPDATE {{.Schema}}.[GI_Pulls] WITH (ROWLOCK, READCOMMITTEDLOCK) SET State = 'released' WHERE PullGUID = @PullGUID AND State <> 'settled';
    SELECT @queue = p.Queue, @state = p.State FROM {{.Schema}}.[GI_Pulls] p WITH (READCOMMITTEDLOCK) WHERE p.PullGUID = @PullGUID;
    IF @queue IS NULL
    BEGIN
        COMMIT TRANSACTION;
        RETURN 0;
    END;
    IF @state = 'settled'
        THROW 51007, N'weir: the pull is settled; it cannot be released', 1;
    SET @sql = REPLACE(N'
    UPDATE TOP (1000) q
    SET PullGUID = NULL
    FROM {queue} q WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
    WHERE q.PullGUID = @pull;
    SET @gone = @@ROWCOUNT;', N'{queue}', N'{{.SchemaText}}.' + QUOTENAME(CASE @queue WHEN 'default' THEN N'InstanceChanges' ELSE N'InstanceChanges_' + @queue END));
    SET @gone = 1;
    WHILE @gone > 0
        EXEC sys.sp_executesql @sql, N'@pull uniqueidentifier, @gone int OUTPUT', @pull = @PullGUID, @gone = @gone OUTPUT;
    COMMIT TRANSACTION;
    EXEC {{.Schema}}.[GI_EndPull] @PullGUID, @queue, @Done OUTPUT;
    RETURN 0;
END
