-- A table by name: $1 schema, $2 name. One row, or none.
select c.oid::bigint, c.relkind::text, c.relispartition, c.reltuples::bigint,
       c.relrowsecurity and (c.relforcerowsecurity or not pg_has_role(c.relowner, 'member')) and not r.rolbypassrls and not r.rolsuper as filtered,
       has_table_privilege(c.oid, 'SELECT') as may_select,
       has_table_privilege(c.oid, 'TRIGGER') as may_trigger,
       exists (select from pg_subscription_rel s where s.srrelid = c.oid) as subscribed,
       exists (select from pg_trigger g where g.tgrelid = c.oid and not g.tgisinternal and g.tgtype & 64 <> 0) as instead_of,
       exists (select from pg_inherits i join pg_class k on k.oid = i.inhrelid where i.inhparent = c.oid and not k.relispartition) as has_children
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_roles r on r.rolname = current_user
where n.nspname = $1 and c.relname = $2
