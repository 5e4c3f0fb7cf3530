-- claim(...): leases up to i_limit changes of a queue to a new pull. No rows: nothing can be claimed now, and no pull was made.
-- Parameters: i_pull a new GUID of the caller's; i_ledger the identity of the target's ledger; i_lease on this server's clock;
--   i_captures, i_concepts, i_types filters (null: all); i_from skips changes tagged before it (null: none).
-- Returns each (instance, type) once, in no order.
--
-- Locks: the queue's row in queues, so that claims of a queue come one after another and each sees what the last one
-- took; then the claimed rows, passing over what a user's transaction holds. The statement that picks them starts after
-- the first lock is had, so its snapshot is current: hence READ COMMITTED. Picked rows are materialised: a LIMIT in a
-- sub-select under SKIP LOCKED may be run twice.
create or replace function {{.Schema}}.claim(
    i_queue    text,
    i_pull     uuid,
    i_name     text,
    i_puller   text,
    i_ledger   uuid,
    i_limit    integer       default 5000,
    i_lease    interval      default '5 minutes',
    i_captures integer[]     default null,
    i_concepts uuid[]        default null,
    i_types    text[]        default null,
    i_from     timestamptz   default null
)
returns table (
    instance_guid   uuid,
    change_type     text,
    changed_on      timestamptz,
    concept_guid    uuid,
    old_primary_key text,
    capture_id      integer,
    attempts        integer
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s' -- it waits for other claims only, and holds nothing then
set enable_seqscan = off
set jit = off
set enable_sort = off
set enable_bitmapscan = off
as $weir$
declare
    v_table name;
    v_now   timestamptz;
begin
    perform {{.Schema}}.assert_read_committed('claim');
    select q.table_name into v_table from {{.Schema}}.queues q where q.name = i_queue for no key update;
    if not found then
        raise exception 'weir: there is no queue %', quote_literal(i_queue)
            using errcode = 'undefined_object', hint = 'Run weir triggers apply, which makes the queues that the configuration names.';
    end if;
    v_now := clock_timestamp();

    return query execute format($$
        with picked as materialized (
            select q.ctid
            from {{.Schema}}.%1$I q
            where q.pull_guid is null
              and q.changed_on >= coalesce($7, '-infinity')
              and (q.not_before is null or q.not_before <= $1)
              and ($4 is null or q.capture_id = any ($4)
                   or q.capture_id is null and exists (
                       select from {{.Schema}}.captures c
                       where c.capture_id = any ($4) and (c.concept_guid = q.concept_guid or c.concept_guid is null)))
              and ($5 is null or q.concept_guid = any ($5))
              and ($6 is null or q.change_type = any ($6))
              and (q.waits_for_pull_guid is null or not exists (
                      select from {{.Schema}}.pulls p
                      where p.pull_guid = q.waits_for_pull_guid and p.state = 'claimed'))
              -- Both types of one row can be here at once, when other code tags it, or a fold and a user do in the same moment.
              -- They go one after the other: what is in flight, in this version or an earlier one, or older and just as
              -- claimable, holds the other back.
              and (q.change_type not in ('Instance Inserted', 'Instance Deleted') or not exists (
                      select from {{.Schema}}.%1$I s
                      where s.instance_guid = q.instance_guid
                        and s.change_type = case q.change_type when 'Instance Inserted' then 'Instance Deleted' else 'Instance Inserted' end
                        and (exists (
                                 select from {{.Schema}}.pulls p
                                 where p.pull_guid in (s.pull_guid, s.waits_for_pull_guid) and p.state = 'claimed')
                             or s.pull_guid is null
                                and (s.changed_on, s.change_type) < (q.changed_on, q.change_type)
                                and (s.not_before is null or s.not_before <= $1)
                                and ($6 is null or s.change_type = any ($6)))))
            order by q.changed_on
            limit $2
            for update of q skip locked
        ), claimed as (
            update {{.Schema}}.%1$I q
            set pull_guid = $3, waits_for_pull_guid = null
            where q.ctid = any (array(select p.ctid from picked p))
            returning q.instance_guid, q.change_type::text, q.changed_on, q.concept_guid, q.old_primary_key::text, q.capture_id, coalesce(q.attempts, 0)
        ), noted as (
            insert into {{.Schema}}.pulls (pull_guid, name, queue, puller, ledger, state, claimed_on, lease_until, rows, instances)
            select $3, $8, $9, $10, $11, 'claimed', $1, $1 + $12, count(*), array_agg(c.instance_guid)
            from claimed c
            having count(*) > 0
        )
        select * from claimed
    $$, v_table)
    using v_now, i_limit, i_pull, i_captures, i_concepts, i_types, i_from, i_name, i_queue, i_puller, i_ledger, i_lease;
end
$weir$
