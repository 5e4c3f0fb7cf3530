-- release(pull): gives the pull's changes back at once. Only a pull that can no longer commit at its target may be released.
-- Returns whether nothing here names the pull any more. Locks as settle. May be called again, by anybody.
create or replace function {{.Schema}}.release(i_pull uuid, out done boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '400ms'
set enable_seqscan = off
set jit = off
as $weir$
declare
    v_table     name;
    v_state     text;
    v_instances uuid[];
begin
    done := true;
    select q.table_name, p.state, p.instances into v_table, v_state, v_instances
    from {{.Schema}}.pulls p
    join {{.Schema}}.queues q on q.name = p.queue
    where p.pull_guid = i_pull
    for update of p;
    if not found then
        return;
    end if;
    if v_state = 'settled' then
        raise exception 'weir: pull % is settled; it cannot be released', i_pull using errcode = 'object_not_in_prerequisite_state';
    end if;
    update {{.Schema}}.pulls p set state = 'released' where p.pull_guid = i_pull and p.state <> 'released';

    execute format($$
        with mine as materialized (
            select m.ctid from {{.Schema}}.%1$I m where m.instance_guid = any ($2) and m.pull_guid = $1
        )
        update {{.Schema}}.%1$I q
        set pull_guid = null
        where q.ctid = any (array( -- by place, as settle does
            select n.ctid from {{.Schema}}.%1$I n where n.ctid = any (array(select m.ctid from mine m)) and n.pull_guid = $1 for update skip locked))
    $$, v_table) using i_pull, v_instances;

    execute format('select not exists (select from {{.Schema}}.%I q where q.instance_guid = any ($2) and q.pull_guid = $1)', v_table)
    into done
    using i_pull, v_instances;
    if done then
        delete from {{.Schema}}.pulls p where p.pull_guid = i_pull;
    end if;
end
$weir$
