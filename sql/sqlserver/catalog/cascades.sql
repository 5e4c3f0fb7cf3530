-- The columns of a table (@p1 its object id) that the action of a foreign key may change: 1 CASCADE, 2 SET NULL, 3 SET DEFAULT.
SELECT DISTINCT k.parent_column_id
FROM sys.foreign_keys f
JOIN sys.foreign_key_columns k ON k.constraint_object_id = f.object_id
WHERE f.parent_object_id = @p1 AND (f.update_referential_action <> 0 OR f.delete_referential_action IN (2, 3))
