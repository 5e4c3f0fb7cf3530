-- assert_read_committed(): refuses to run on an old snapshot.
-- The look at other pulls must be current, and a statement at READ COMMITTED takes its own snapshot.
create or replace function {{.Schema}}.assert_read_committed(i_routine text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $weir$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'weir: % must run at READ COMMITTED, not %', i_routine, upper(current_setting('transaction_isolation'))
            using errcode = 'active_sql_transaction',
                  hint = 'Call it in a transaction of its own, begun with BEGIN ISOLATION LEVEL READ COMMITTED.';
    end if;
end
$weir$
