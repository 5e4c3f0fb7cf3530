-- GI_ExtendPull(@PullGUID, @LeaseMS): moves a live pull's lease to now plus @LeaseMS, on this server's clock. Raises 51001 when the
-- pull is not live.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_ExtendPull]
    @PullGUID uniqueidentifier,
    @LeaseMS  bigint = 300000
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET LOCK_TIMEOUT 400;
    DECLARE @live int;
    UPDATE {{.Schema}}.[GI_Pulls] WITH (ROWLOCK, READCOMMITTEDLOCK)
    SET LeaseUntil = DATEADD(millisecond, @LeaseMS % 86400000, DATEADD(day, @LeaseMS / 86400000, SYSUTCDATETIME()))
    WHERE PullGUID = @PullGUID AND State = 'claimed';
    SET @live = @@ROWCOUNT;
    IF @live = 0
        THROW 51001, N'weir: the pull is not live', 1;
    RETURN 0;
END
