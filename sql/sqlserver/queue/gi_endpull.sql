-- GI_EndPull(...): forgets a settled or released pull that no row of its queue names any more. Not for others to call.
-- A row that a user's transaction holds may come back with the pull on it: it is asked with locks, and not waited for.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_EndPull]
    @PullGUID uniqueidentifier,
    @Queue    varchar(30),
    @Done     bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT OFF; -- a lock that is not had must not doom a caller's transaction
    SET LOCK_TIMEOUT 0;
    DECLARE @sql nvarchar(max), @left int;
    SET @Done = 0;
    SET @sql = REPLACE(N'SELECT @left = COUNT(*) FROM (SELECT TOP (1) 1 AS x FROM {queue} q WITH (READCOMMITTEDLOCK, ROWLOCK) WHERE q.PullGUID = @pull) c;',
        N'{queue}', N'{{.SchemaText}}.' + QUOTENAME(CASE @Queue WHEN 'default' THEN N'InstanceChanges' ELSE N'InstanceChanges_' + @Queue END));
    BEGIN TRY
        EXEC sys.sp_executesql @sql, N'@pull uniqueidentifier, @left int OUTPUT', @pull = @PullGUID, @left = @left OUTPUT;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() NOT IN (1222, 1205)
        BEGIN;
            THROW;
        END;
        RETURN 0;
    END CATCH;
    IF @left > 0
        RETURN 0;
    SET LOCK_TIMEOUT 400;
    DELETE FROM {{.Schema}}.[GI_Pulls] WITH (ROWLOCK) WHERE PullGUID = @PullGUID AND State <> 'claimed';
    SET @Done = 1;
    RETURN 0;
END
