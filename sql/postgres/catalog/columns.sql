-- The columns of a table ($1 its oid), in order. A domain is shown as the type under it.
select a.attname::text, a.attnum, b.oid::bigint, b.typmod, b.typtype::text, b.typcategory::text,
       case when b.oid = 'bpchar'::regtype and b.typmod = -1 then 'bpchar' else format_type(b.oid, b.typmod) end,
       a.attnotnull, a.attgenerated::text, a.attidentity::text,
       coalesce(l.collisdeterministic, true),
       case b.oid when 'bpchar'::regtype then 'bpchar' when '"char"'::regtype then '"char"' when 'bit'::regtype then '"bit"' else format_type(b.oid, null) end
from pg_attribute a
cross join lateral (
    with recursive base as (
        select t.oid, t.typtype, t.typcategory, t.typbasetype, a.atttypmod as typmod, t.typtypmod, t.typname
        from pg_type t
        where t.oid = a.atttypid
        union all
        select t.oid, t.typtype, t.typcategory, t.typbasetype, d.typtypmod, t.typtypmod, t.typname
        from base d
        join pg_type t on t.oid = d.typbasetype
        where d.typtype = 'd'
    )
    select * from base where base.typtype <> 'd'
) b
left join pg_collation l on l.oid = a.attcollation
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
