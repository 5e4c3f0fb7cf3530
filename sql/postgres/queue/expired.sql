-- expired(name): the pulls of that name that somebody must finish: leases that ran out (state claimed: the target's ledger
-- knows whether it committed: settle, or revoke and release), and settled or released pulls with rows left (call again).
create or replace function {{.Schema}}.expired(i_name text)
returns table (pull_guid uuid, puller text, ledger uuid, state text, rows integer)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $weir$
    select p.pull_guid, p.puller, p.ledger, p.state, p.rows
    from {{.Schema}}.pulls p
    where p.name = i_name and (p.state <> 'claimed' or p.lease_until < clock_timestamp())
    order by p.lease_until, p.pull_guid
$weir$
