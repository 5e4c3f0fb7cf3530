-- GI_InstancesChanged(@Changes): tags many instances by hand, in the caller's transaction; each instance and type once. As
-- GI_InstanceChanged otherwise, but more than 1000 go by the inbox.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_InstancesChanged]
    @Changes {{.Schema}}.[GI_Tags] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    BEGIN TRY
        {{template "table" .Tags}}
        INSERT INTO @tags (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
        SELECT t.InstanceGUID, t.ChangeType, SYSUTCDATETIME(), t.ConceptGUID, t.OldPrimaryKey, NULL
        FROM @Changes t;
        IF EXISTS (SELECT 1 FROM @tags t WHERE CONVERT(nvarchar(4000), CONVERT(varchar(8000), t.OldPrimaryKey)) COLLATE Latin1_General_BIN2 <> t.OldPrimaryKey)
           AND EXISTS (SELECT 1
                       FROM sys.columns c
                       WHERE c.object_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND c.name = N'OldPrimaryKey' AND c.system_type_id <> 231)
            THROW 51003, N'an old primary key has characters that the column OldPrimaryKey does not hold', 1;
        -- From here on an error dooms the transaction: half of the tags must not be committed.
        SET XACT_ABORT ON;
        IF (SELECT COUNT(*) FROM @tags) > 1000
           OR EXISTS (SELECT 1 FROM sys.dm_exec_sessions s WHERE s.session_id = @@SPID AND s.transaction_isolation_level = 5)
           OR EXISTS (SELECT 1 FROM {{.Schema}}.[GI_CaptureQueues] cq WHERE cq.Queue <> 'default')
        BEGIN
            {{template "append" .Tags}}
            RETURN 0;
        END;
        {{template "tag" .Tags}}
        RETURN 0;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() IN (1205, 1222, 3960)
        BEGIN;
            THROW;
        END;
        DECLARE @story nvarchar(2000);
        SET @story = N'weir: {{.SchemaText}}.[GI_InstancesChanged] cannot tag: ' + LEFT(ERROR_MESSAGE(), 1500)
                   + N' (error ' + CONVERT(nvarchar(12), ERROR_NUMBER()) + N')';
{{- if .Log}}
        IF XACT_STATE() <> -1
        BEGIN TRY
            EXEC {{.Schema}}.[GI_LogEvent] {{if eq .Log 2}}N'{{.SchemaText}}.[GI_InstancesChanged]', {{end}}@story;
        END TRY
        BEGIN CATCH
            SET @story = @story + N'. It is not logged: ' + LEFT(ERROR_MESSAGE(), 300);
        END CATCH;
{{- end}}
        THROW 51003, @story, 1;
    END CATCH;
END
