-- extend(pull, lease): moves a live pull's lease to now plus i_lease, on this server's clock. Returns its new end.
-- Raises WR001 when the pull is not live.
create or replace function {{.Schema}}.extend(i_pull uuid, i_lease interval)
returns timestamptz
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '400ms'
as $weir$
declare
    v_until timestamptz;
begin
    update {{.Schema}}.pulls p
    set lease_until = clock_timestamp() + i_lease
    where p.pull_guid = i_pull and p.state = 'claimed'
    returning p.lease_until into v_until;
    if not found then
        raise exception 'weir: pull % is not live', i_pull using errcode = 'WR001';
    end if;
    return v_until;
end
$weir$
