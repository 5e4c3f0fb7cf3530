-- The unique indexes of a table ($1): columns (null entries are expressions), whether it is plain (no predicate, no expression).
select array(select a.attname::text from unnest(i.indkey) with ordinality k (attnum, place)
             left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
             where k.place <= i.indnkeyatts order by k.place),
       i.indpred is null and i.indexprs is null and i.indimmediate and i.indisvalid
from pg_index i
where i.indrelid = $1::bigint::oid and (i.indisunique or i.indisexclusion)
order by i.indexrelid
