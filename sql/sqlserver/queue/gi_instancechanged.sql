-- GI_InstanceChanged(@InstanceGUID, @ConceptGUID, @ChangeType, @OldPrimaryKey): tags one instance by hand, in the caller's
-- transaction. Returns 0, or raises error 51003, which names the procedure and the instance and tells all of the cause.
-- The queues: those of the captures of the concept; the default queue where there is none.
-- It tags the default queue at once, other queues by the inbox; at SNAPSHOT all by the inbox: an old snapshot must not meet
-- the puller's writes.
-- A failure is logged by GI_LogEvent where the transaction can still be written: what is wrong in the call, unless the
-- caller has XACT_ABORT ON, and anything outside a transaction. Such a row lives if the caller commits, or
-- had no transaction; it goes with a rollback, and a doomed transaction takes none. So the error's text is the whole story.
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_InstanceChanged]
    @InstanceGUID  uniqueidentifier,
    @ConceptGUID   uniqueidentifier,
    @ChangeType    nvarchar(4000),
    @OldPrimaryKey nvarchar(4000) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    BEGIN TRY
        IF @InstanceGUID IS NULL OR COALESCE(@ChangeType, N'') = N''
            THROW 51003, N'an instance GUID and a change type are needed', 1;
        IF LEN(@ChangeType) > 40
            THROW 51003, N'the change type is longer than 40 characters', 1;
        IF CONVERT(nvarchar(4000), CONVERT(varchar(40), @ChangeType)) COLLATE Latin1_General_BIN2 <> @ChangeType
            THROW 51003, N'the change type has characters that varchar(40) in this database does not hold', 1;
        IF EXISTS (SELECT 1
                   FROM sys.columns c
                   WHERE c.object_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND c.name = N'OldPrimaryKey' AND c.max_length > 0
                     AND DATALENGTH(@OldPrimaryKey) / 2 > c.max_length / CASE WHEN c.system_type_id = 231 THEN 2 ELSE 1 END)
            THROW 51003, N'the old primary key is longer than the column OldPrimaryKey', 1;
        IF CONVERT(nvarchar(4000), CONVERT(varchar(8000), @OldPrimaryKey)) COLLATE Latin1_General_BIN2 <> @OldPrimaryKey
           AND EXISTS (SELECT 1
                       FROM sys.columns c
                       WHERE c.object_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND c.name = N'OldPrimaryKey' AND c.system_type_id <> 231)
            THROW 51003, N'the old primary key has characters that the column OldPrimaryKey does not hold', 1;
        -- From here on an error dooms the transaction: half a tag must not be committed.
        SET XACT_ABORT ON;
        DECLARE @inbox bit;
        SET @inbox = 0;
        IF EXISTS (SELECT 1 FROM sys.dm_exec_sessions s WHERE s.session_id = @@SPID AND s.transaction_isolation_level = 5)
           OR EXISTS (
                SELECT 1
                FROM {{.Schema}}.[GI_Captures] c
                JOIN {{.Schema}}.[GI_CaptureQueues] cq ON cq.CaptureID = c.CaptureID
                WHERE (c.ConceptGUID = @ConceptGUID OR c.ConceptGUID IS NULL)
                  AND c.ChangeType = CASE WHEN @ChangeType IN ('Instance Inserted', 'Instance Deleted') THEN '' ELSE @ChangeType END
                  AND cq.Queue <> 'default')
            SET @inbox = 1;
        {{template "table" .Tags}}
        INSERT INTO @tags (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
        VALUES (@InstanceGUID, @ChangeType, SYSUTCDATETIME(), @ConceptGUID, @OldPrimaryKey, NULL);
        IF @inbox = 1
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
        SET @story = N'weir: {{.SchemaText}}.[GI_InstanceChanged] cannot tag instance ' + COALESCE(CONVERT(nvarchar(36), @InstanceGUID), N'NULL')
                   + N', concept ' + COALESCE(CONVERT(nvarchar(36), @ConceptGUID), N'NULL') + N', type ' + COALESCE(LEFT(@ChangeType, 60), N'NULL')
                   + N', old key ' + COALESCE(LEFT(@OldPrimaryKey, 200), N'NULL') + N': ' + LEFT(ERROR_MESSAGE(), 1000)
                   + N' (error ' + CONVERT(nvarchar(12), ERROR_NUMBER()) + N')';
{{- if .Log}}
        IF XACT_STATE() <> -1
        BEGIN TRY
            EXEC {{.Schema}}.[GI_LogEvent] {{if eq .Log 2}}N'{{.SchemaText}}.[GI_InstanceChanged]', {{end}}@story;
        END TRY
        BEGIN CATCH
            SET @story = @story + N'. It is not logged: ' + LEFT(ERROR_MESSAGE(), 300);
        END CATCH;
{{- end}}
        THROW 51003, @story, 1;
    END CATCH;
END
