-- The foreign keys from ($1 = conrelid) and to ($1 = confrelid) a table, and what a deleted row does to those that refer to it.
select f.conname::text, f.conrelid = $1::bigint::oid as outgoing, f.conrelid = f.confrelid as own, f.confdeltype::text,
       cn.nspname::text, c.relname::text, rn.nspname::text, r.relname::text,
       array(select a.attname::text from unnest(f.conkey) with ordinality k (attnum, place) join pg_attribute a on a.attrelid = f.conrelid and a.attnum = k.attnum order by k.place),
       array(select a.attname::text from unnest(f.confkey) with ordinality k (attnum, place) join pg_attribute a on a.attrelid = f.confrelid and a.attnum = k.attnum order by k.place)
from pg_constraint f
join pg_class c on c.oid = f.conrelid
join pg_namespace cn on cn.oid = c.relnamespace
join pg_class r on r.oid = f.confrelid
join pg_namespace rn on rn.oid = r.relnamespace
where f.contype = 'f' and (f.conrelid = $1::bigint::oid or f.confrelid = $1::bigint::oid) and f.conparentid = 0
order by f.conname, f.conrelid
