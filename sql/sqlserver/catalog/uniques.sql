-- The unique indexes of a table (@p1 its object id), the primary key first, a row for each key column in its order:
-- index, whether it is the primary key, whether it is plain (no filter, enabled), whether it drops
-- duplicates with a warning only, column id.
SELECT i.index_id, i.is_primary_key,
       CASE WHEN i.has_filter = 0 AND i.is_disabled = 0 THEN 1 ELSE 0 END,
       i.ignore_dup_key, k.column_id
FROM sys.indexes i
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
WHERE i.object_id = @p1 AND i.is_unique = 1 AND i.is_hypothetical = 0 AND k.is_included_column = 0 AND k.key_ordinal > 0
ORDER BY i.is_primary_key DESC, i.index_id, k.key_ordinal
