-- create_queue(name): makes a queue beside the default one, and the function that tags into it. Idempotent.
-- Parameters: i_name, 1 to 30 characters of a-z, 0-9 and _.
create or replace function {{.Schema}}.create_queue(i_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $weir$
declare
    v_table text := case when i_name = 'default' then 'instance_changes' else 'instance_changes_' || i_name end;
begin
    if i_name !~ '^[a-z0-9_]{1,30}$' then
        raise exception 'weir: queue name % is not 1 to 30 characters of a-z, 0-9 and _', quote_literal(i_name)
            using errcode = 'invalid_parameter_value';
    end if;
    if i_name <> 'default' then
        execute format('create table if not exists {{.Schema}}.%I (like {{.Schema}}.instance_changes including all) with ('
                    || 'fillfactor = 45, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)',
                       v_table);
        insert into {{.Schema}}.queues values (i_name, v_table) on conflict do nothing;
    end if;

    -- tag_<queue>(...): one type, many instances, each once, in the order of instance_guid.
    -- Tagging in one step: remove the cancelled type, upsert, and wait for the pull that has the earlier version.
    -- Not a definer function: its callers are, and pin the search_path.
    execute format($tag$
        create or replace function {{.Schema}}.%1$I(i_type text, i_guids uuid[], i_changed_on timestamptz[], i_concepts uuid[], i_keys text[], i_captures integer[])
        returns void
        language plpgsql
        set plan_cache_mode = force_custom_plan -- how many there are decides
        set enable_seqscan = off                -- but never a walk over the whole queue
        as $body$
        declare
            v_cancels text := case i_type when 'Instance Inserted' then 'Instance Deleted' when 'Instance Deleted' then 'Instance Inserted' end;
            v_guids   uuid[];
            v_pulls   uuid[];
        begin
            if v_cancels is not null then
                with gone as (
                    delete from {{.Schema}}.%2$I q
                    where q.instance_guid = any (i_guids) and q.change_type = v_cancels
                    returning q.instance_guid, coalesce(q.pull_guid, q.waits_for_pull_guid) as pull_guid
                )
                select array_agg(g.instance_guid order by g.instance_guid), array_agg(g.pull_guid order by g.instance_guid)
                into v_guids, v_pulls
                from gone g
                where g.pull_guid is not null;
            end if;

            insert into {{.Schema}}.%2$I as q (instance_guid, change_type, changed_on, concept_guid, old_primary_key, capture_id)
            select t.guid, i_type, t.changed_on, t.concept, t.key, t.capture
            from unnest(i_guids, i_changed_on, i_concepts, i_keys, i_captures) as t (guid, changed_on, concept, key, capture)
            on conflict (instance_guid, change_type) do update
            set changed_on          = greatest(excluded.changed_on, q.changed_on + interval '1 microsecond'),
                concept_guid        = excluded.concept_guid,
                pull_guid           = null,
                old_primary_key     = excluded.old_primary_key,
                waits_for_pull_guid = coalesce(q.pull_guid, q.waits_for_pull_guid),
                capture_id          = excluded.capture_id,
                attempts            = null,
                not_before          = null;

            for i in 1 .. coalesce(cardinality(v_guids), 0) loop
                update {{.Schema}}.%2$I q
                set waits_for_pull_guid = case
                                              when q.waits_for_pull_guid is null then v_pulls[i]
                                              else {{.Schema}}.live_pull(q.waits_for_pull_guid, v_pulls[i])
                                          end
                where q.instance_guid = v_guids[i] and q.change_type = i_type;
            end loop;
        end
        $body$
    $tag$, 'tag_' || i_name, v_table);
    execute format('revoke all on function {{.Schema}}.%I(text, uuid[], timestamptz[], uuid[], text[], integer[]) from public', 'tag_' || i_name);
end
$weir$
