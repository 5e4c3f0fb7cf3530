-- fold(limit): moves up to i_limit tags from the inbox into the queues that want them, by the rules of tagging.
-- Returns the number of inbox rows that are gone. 0: nothing is left, another session folds, or all the rest is locked.
--
-- Locks: one session folds at a time (advisory, not waited for). Queue rows that exist are locked SKIP LOCKED; what is
-- locked by others stays in the inbox. An insert can meet another transaction's uncommitted row, which only waiting
-- can tell: the lock time-out makes that a moment, far below deadlock_timeout, so that no user is a deadlock's victim;
-- then half as many rows are tried, of another part of the inbox.
create or replace function {{.Schema}}.fold(i_limit integer)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '40ms'
set enable_seqscan = off -- the queue by its key, however the statistics see it
set jit = off
as $weir$
declare
    v_limit  integer := i_limit;
    v_offset integer := 0;
    v_taken  integer;
begin
    perform {{.Schema}}.assert_read_committed('fold');
    if not pg_try_advisory_xact_lock((x'77656972'::bigint << 32) | format('%I.inbox', {{.SchemaLiteral}})::regclass::oid::bigint) then
        return 0;
    end if;
    loop
        begin
            v_taken := {{.Schema}}.fold_slice(v_limit, v_offset);
            return v_taken;
        exception when lock_not_available then
            if v_limit <= 1 and v_offset > 64 then
                return 0;
            end if;
            -- Of what is there, not of what was asked for: the offset must not jump over all of it.
            select greatest(least(v_limit, count(*)) / 4, 1) into v_limit from (select from {{.Schema}}.inbox n limit v_limit) i;
            v_offset := v_offset + 1 + floor(random() * v_limit)::integer;
        end;
    end loop;
end
$weir$
