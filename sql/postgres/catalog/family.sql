-- A table ($1) with its partitions and inheritance children of every depth: schema, name, oid, kind, whether a
-- subscription writes it, whether it has a trigger of the name $2.
with recursive family as (
    select $1::oid as oid
    union
    select i.inhrelid from pg_inherits i join family f on f.oid = i.inhparent
)
select n.nspname::text, c.relname::text, c.oid::bigint, c.relkind::text,
       exists (select from pg_subscription_rel s where s.srrelid = c.oid),
       exists (select from pg_trigger g where g.tgrelid = c.oid and g.tgname = $2)
from family f
join pg_class c on c.oid = f.oid
join pg_namespace n on n.oid = c.relnamespace
order by c.oid <> $1, n.nspname, c.relname
