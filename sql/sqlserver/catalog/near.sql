-- Tables whose names are like @p2, a name of no table; those of the schema @p1 first. One text a row, five at most.
SELECT TOP (5) s.name + N'.' + t.name
FROM sys.tables t
JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE CHARINDEX(LOWER(@p2), LOWER(t.name)) > 0 OR CHARINDEX(LOWER(t.name), LOWER(@p2)) > 0
ORDER BY CASE WHEN LOWER(t.name) = LOWER(@p2) THEN 0 ELSE 1 END, CASE WHEN s.name = @p1 THEN 0 ELSE 1 END, s.name, t.name
