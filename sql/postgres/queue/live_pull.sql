-- live_pull(pull, pull): which of two pulls that one instance was claimed into is live; null if neither is. Not both can be.
-- Volatile: it sees what committed since the statement began that calls it, for a queue's row under that statement's lock
-- can have been claimed since.
create or replace function {{.Schema}}.live_pull(i_one uuid, i_other uuid)
returns uuid
language plpgsql
volatile
as $weir$
begin
    return (select p.pull_guid from {{.Schema}}.pulls p where p.pull_guid in (i_one, i_other) and p.state = 'claimed' limit 1);
end
$weir$
