-- gi_instance_changed(instance, concept, change type, old key): tags one instance by hand, in the caller's transaction.
-- The queues: those of the captures of the concept; the default queue where there is none.
-- At READ COMMITTED it tags at once, else by the inbox: an old snapshot must not meet the puller's writes.
-- Grant EXECUTE (and USAGE on the schema) to a role that needs it; PUBLIC may not.
create or replace function {{.Schema}}.gi_instance_changed(
    i_instance_guid   uuid,
    i_concept_guid    uuid,
    i_change_type     text,
    i_old_primary_key text default null
)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $weir$
declare
    v_queue text;
begin
    if i_instance_guid is null or coalesce(i_change_type, '') = '' then
        raise exception 'weir: gi_instance_changed needs an instance GUID and a change type'
            using errcode = 'null_value_not_allowed';
    end if;
    if length(i_change_type) > 40 then
        raise exception 'weir: change type % is longer than 40 characters', quote_literal(i_change_type)
            using errcode = 'string_data_right_truncation';
    end if;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        insert into {{.Schema}}.inbox (instance_guid, change_type, changed_on, concept_guid, old_primary_key)
        values (i_instance_guid, i_change_type, clock_timestamp(), i_concept_guid, i_old_primary_key);
        return;
    end if;
    for v_queue in select q from {{.Schema}}.queues_of(null, i_concept_guid, i_change_type) q loop
        execute format('select {{.Schema}}.%I($1, array[$2], array[$3], array[$4], array[$5], array[null::integer])', 'tag_' || v_queue)
        using i_change_type, i_instance_guid, clock_timestamp(), i_concept_guid, i_old_primary_key;
    end loop;
end
$weir$
