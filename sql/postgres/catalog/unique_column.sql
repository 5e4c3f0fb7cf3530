-- Whether one column ($2) of a table ($1) is unique by itself, at every moment.
select exists (
    select from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attname = $2
    where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indimmediate
      and i.indpred is null and i.indexprs is null and i.indnkeyatts = 1 and i.indkey[0] = a.attnum
)
