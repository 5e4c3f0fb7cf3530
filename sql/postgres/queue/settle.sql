-- settle(pull): the target committed the pull: deletes the changes that still carry it.
-- Returns how many, and whether nothing here names the pull any more (then the ledger may forget it).
-- Locks: the pull's row; then its changes, passing over those that a user's transaction is tagging anew: if that rolls
-- back, the pull's row stays as settled and a later call finishes. May be called again, by anybody.
create or replace function {{.Schema}}.settle(i_pull uuid, out settled integer, out done boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '400ms'
set enable_seqscan = off
set jit = off
as $weir$
declare
    v_queue     text;
    v_table     name;
    v_state     text;
    v_instances uuid[];
begin
    settled := 0;
    done := true;
    select p.queue, q.table_name, p.state, p.instances into v_queue, v_table, v_state, v_instances
    from {{.Schema}}.pulls p
    join {{.Schema}}.queues q on q.name = p.queue
    where p.pull_guid = i_pull
    for update of p;
    if not found then
        return;
    end if;
    if v_state = 'released' then
        raise exception 'weir: pull % was released; it cannot be settled', i_pull using errcode = 'object_not_in_prerequisite_state';
    end if;
    update {{.Schema}}.pulls p set state = 'settled' where p.pull_guid = i_pull and p.state <> 'settled';

    execute format($$
        with mine as materialized (
            select m.ctid from {{.Schema}}.%1$I m where m.instance_guid = any ($3) and m.pull_guid = $1
        ), gone as (
            -- Locked by place: a row that was tagged anew meanwhile is looked at again, and must not be compared with
            -- thousands of instances while the others are held.
            delete from {{.Schema}}.%1$I q
            where q.ctid = any (array(
                select n.ctid from {{.Schema}}.%1$I n where n.ctid = any (array(select m.ctid from mine m)) and n.pull_guid = $1 for update skip locked))
            returning q.instance_guid, q.change_type
        ), forgotten as (
            -- The two types of a row's own are one; a child's failure is another pull's to forget.
            delete from {{.Schema}}.failures f
            using gone g
            where f.queue = $2 and f.instance_guid = g.instance_guid
              and (f.change_type = g.change_type
                   or f.change_type in ('Instance Inserted', 'Instance Deleted') and g.change_type in ('Instance Inserted', 'Instance Deleted'))
              and exists (select from {{.Schema}}.failures e where e.queue = $2)
        )
        select count(*) from gone
    $$, v_table) into settled using i_pull, v_queue, v_instances;

    if settled < cardinality(v_instances) then
        execute format('select not exists (select from {{.Schema}}.%I q where q.instance_guid = any ($2) and q.pull_guid = $1)', v_table)
        into done
        using i_pull, v_instances;
    end if;
    if done then
        delete from {{.Schema}}.pulls p where p.pull_guid = i_pull;
    end if;
end
$weir$
