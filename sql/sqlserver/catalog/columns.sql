-- The columns of a table (@p1 its object id), in order. An alias type is shown as the type under it; the types that are
-- assemblies (hierarchyid, geometry, geography) have one system type id in common, so their own name counts.
SELECT c.column_id, c.name,
       CASE WHEN u.is_assembly_type = 1 THEN u.name ELSE b.name END,
       CASE WHEN u.is_user_defined = 1 THEN u.name ELSE N'' END,
       c.max_length, c.precision, c.scale, c.is_nullable, c.is_identity, c.is_computed,
       COALESCE(CONVERT(nvarchar(128), c.collation_name), N''),
       COALESCE(CONVERT(int, COLLATIONPROPERTY(CONVERT(nvarchar(128), c.collation_name), 'CodePage')), 0),
       CASE WHEN c.default_object_id <> 0 THEN 1 ELSE 0 END,
       COALESCE(CONVERT(int, c.generated_always_type), 0)
FROM sys.columns c
JOIN sys.types u ON u.user_type_id = c.user_type_id
LEFT JOIN sys.types b ON b.user_type_id = c.system_type_id
WHERE c.object_id = @p1
ORDER BY c.column_id
