-- A table or view by name: @p1 schema, @p2 name. One row, or none.
SELECT o.object_id, RTRIM(o.type), s.name, o.name
FROM sys.objects o
JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE s.name = @p1 AND o.name = @p2 AND o.type IN ('U', 'V')
