-- What a capture must know of a table (@p1 its object id, @p2 its quoted name, @p3 weir's schema): its temporal type, whether it is memory-optimized, a
-- security policy that filters it, the rights of this login, the owners of the table and of weir's tables, the server's option nested triggers, its
-- INSTEAD OF triggers, other AFTER triggers, a clustered columnstore index, whether it is partitioned, whether it is published.
SELECT COALESCE(CONVERT(int, t.temporal_type), 0), COALESCE(CONVERT(int, t.is_memory_optimized), 0),
       COALESCE(HAS_PERMS_BY_NAME(@p2, 'OBJECT', 'SELECT'), 0), COALESCE(HAS_PERMS_BY_NAME(@p2, 'OBJECT', 'ALTER'), 0),
       COALESCE(t.principal_id, s.principal_id), COALESCE((SELECT w.principal_id FROM sys.schemas w WHERE w.name = @p3), 1),
       COALESCE((SELECT CONVERT(int, c.value_in_use) FROM sys.configurations c WHERE c.name = N'nested triggers'), 1),
       (SELECT COUNT(*) FROM sys.triggers g WHERE g.parent_id = t.object_id AND g.is_instead_of_trigger = 1),
       (SELECT COUNT(*) FROM sys.triggers g WHERE g.parent_id = t.object_id AND g.is_instead_of_trigger = 0 AND g.name NOT LIKE 'weir[_]%'),
       COALESCE(CONVERT(int, t.is_published), 0)
FROM sys.tables t
JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE t.object_id = @p1
