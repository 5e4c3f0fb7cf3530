-- The enabled foreign keys from and to a table (@p1 its object id), a row for each column: key, name, both tables' ids, what
-- a deleted row does to those that refer to it, both tables' names, referring and referred column.
SELECT f.object_id, f.name, f.parent_object_id, f.referenced_object_id, CONVERT(int, f.delete_referential_action),
       ps.name, p.name, rs.name, r.name, pc.name, rc.name
FROM sys.foreign_keys f
JOIN sys.foreign_key_columns k ON k.constraint_object_id = f.object_id
JOIN sys.objects p ON p.object_id = f.parent_object_id
JOIN sys.schemas ps ON ps.schema_id = p.schema_id
JOIN sys.objects r ON r.object_id = f.referenced_object_id
JOIN sys.schemas rs ON rs.schema_id = r.schema_id
JOIN sys.columns pc ON pc.object_id = k.parent_object_id AND pc.column_id = k.parent_column_id
JOIN sys.columns rc ON rc.object_id = k.referenced_object_id AND rc.column_id = k.referenced_column_id
WHERE (f.parent_object_id = @p1 OR f.referenced_object_id = @p1) AND f.is_disabled = 0
ORDER BY f.object_id, k.constraint_column_id
