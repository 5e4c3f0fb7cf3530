-- The key of a table ($1 its oid): its primary key, else its first unique index over not-null columns.
select array(select k.attnum::integer from unnest(i.indkey) with ordinality k (attnum, place) where k.place <= i.indnkeyatts order by k.place),
       i.indisprimary, i.indimmediate
from pg_index i
join pg_class c on c.oid = i.indexrelid
where i.indrelid = $1
  and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
  and (i.indisprimary or not exists (
          select from unnest(i.indkey) with ordinality k (attnum, place)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
          where k.place <= i.indnkeyatts and not a.attnotnull))
order by not i.indisprimary, not i.indisreplident, not i.indimmediate, i.indnkeyatts, c.relname
limit 1
