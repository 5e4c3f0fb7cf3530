-- GI_LogEvent(@Object, @Message): keeps a message in GI_Log. Returns 0; 1 where the transaction is doomed, in which nothing
-- can be written. A row is written in the caller's transaction, and goes with it.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_LogEvent]
    @Object  nvarchar(300),
    @Message nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    IF XACT_STATE() = -1
        RETURN 1;
    INSERT INTO {{.Schema}}.[GI_Log] (LoggedOn, Object, Message, ByLogin)
    VALUES (SYSUTCDATETIME(), @Object, @Message, ORIGINAL_LOGIN());
    RETURN 0;
END
