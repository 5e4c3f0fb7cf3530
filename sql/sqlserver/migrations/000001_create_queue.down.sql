-- Removes what the up file made. A queue that a site had before stays the site's: only weir's columns leave it.
SET XACT_ABORT ON;
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;
BEGIN TRANSACTION;
DROP TYPE {{.Schema}}.[GI_Keys];
DROP TYPE {{.Schema}}.[GI_Postponements];
DROP TYPE {{.Schema}}.[GI_Wanted];
DROP TYPE {{.Schema}}.[GI_Tags];
DROP TABLE {{.Schema}}.[GI_Log];
DROP TABLE {{.Schema}}.[GI_Backfills];
DROP TABLE {{.Schema}}.[GI_CaptureQueues];
DROP TABLE {{.Schema}}.[GI_Captures];
DROP TABLE {{.Schema}}.[GI_Failures];
DROP TABLE {{.Schema}}.[GI_Pulls];
DROP TABLE {{.Schema}}.[GI_Inbox];
DROP TABLE {{.Schema}}.[GI_Folding];
DROP TABLE {{.Schema}}.[GI_Queues];
IF EXISTS (SELECT 1 FROM sys.extended_properties WHERE major_id = OBJECT_ID(N'{{.SchemaText}}.[InstanceChanges]') AND minor_id = 0 AND name = N'weir')
    DROP TABLE {{.Schema}}.[InstanceChanges];
ELSE
BEGIN
    DROP INDEX [IX_GI_InstanceChanges_Pull] ON {{.Schema}}.[InstanceChanges];
    ALTER TABLE {{.Schema}}.[InstanceChanges] DROP COLUMN WaitsForPullGUID;
    ALTER TABLE {{.Schema}}.[InstanceChanges] DROP COLUMN CaptureID;
    ALTER TABLE {{.Schema}}.[InstanceChanges] DROP COLUMN Attempts;
    ALTER TABLE {{.Schema}}.[InstanceChanges] DROP COLUMN NotBefore;
END;
COMMIT TRANSACTION;
