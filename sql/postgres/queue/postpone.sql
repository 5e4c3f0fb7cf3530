-- postpone(pull, ...): takes changes out of a live pull, all of them or none, and keeps them for later.
-- Parameters, an element a change: its instance and type; the delay until it may be claimed again; whether that time is
--   rounded up to a multiple of the delay; whether it is a dead letter; the error (null: not at fault, no attempt counted).
-- Raises WR001 when the pull is not live.
-- Locks: the pull's row, then the changes in key order. It waits for a user's transaction a moment only (lock_not_available
-- then): a change that cannot leave the pull surely must not be passed over, or a settle would delete it unshipped.
-- A change tagged anew meanwhile is no longer the pull's; nothing is done for it.
create or replace function {{.Schema}}.postpone(
    i_pull   uuid,
    i_guids  uuid[],
    i_types  text[],
    i_delays interval[],
    i_align  boolean[],
    i_dead   boolean[],
    i_errors text[]
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '400ms'
set enable_seqscan = off
set jit = off
set plan_cache_mode = force_custom_plan
as $weir$
declare
    v_queue text;
    v_table name;
    v_now   timestamptz := clock_timestamp();
    v_rows  integer;
begin
    select p.queue, q.table_name into v_queue, v_table
    from {{.Schema}}.pulls p
    join {{.Schema}}.queues q on q.name = p.queue
    where p.pull_guid = i_pull and p.state = 'claimed'
    for update of p;
    if not found then
        raise exception 'weir: pull % is not live', i_pull using errcode = 'WR001';
    end if;

    execute format($$
        with mine as materialized (
            select m.ctid from {{.Schema}}.%1$I m where m.instance_guid = any ($2) and m.pull_guid = $1
        ), locked as materialized (
            select q.ctid, q.instance_guid, q.change_type
            from {{.Schema}}.%1$I q
            where q.ctid = any (array(select m.ctid from mine m)) and q.pull_guid = $1 -- by place, as settle does
            order by q.instance_guid, q.change_type
            for update
        ), asked as (
            select * from unnest($2, $3, $4, $5, $6, $7) a (guid, type, delay, align, dead, error)
        ), later as (
            update {{.Schema}}.%1$I q
            set pull_guid  = null,
                attempts   = case when a.error is null then q.attempts else coalesce(q.attempts, 0) + 1 end,
                not_before = case
                                 when a.dead then 'infinity'
                                 when a.delay <= interval '0' then null
                                 when a.align then to_timestamp(ceil(extract(epoch from $8) / extract(epoch from a.delay)) * extract(epoch from a.delay))
                                 else $8 + a.delay
                             end
            from locked l
            join asked a on a.guid = l.instance_guid and a.type = l.change_type
            where q.ctid = l.ctid
            returning q.instance_guid, q.change_type, a.error
        ), said as (
            insert into {{.Schema}}.failures as f (queue, instance_guid, change_type, failed_on, last_error)
            select $9, t.instance_guid, t.change_type, $8, t.error from later t where t.error is not null
            on conflict (queue, instance_guid, change_type) do update
            set failed_on = excluded.failed_on, last_error = excluded.last_error
        )
        select count(*) from later
    $$, v_table)
    into v_rows
    using i_pull, i_guids, i_types, i_delays, i_align, i_dead, i_errors, v_now, v_queue;
    return v_rows;
end
$weir$
