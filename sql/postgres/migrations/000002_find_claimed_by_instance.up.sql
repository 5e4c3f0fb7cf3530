-- A claim's new version of a row goes beside the old one, with no entry in any index, where no index has a column that the
-- claim changes and the page has room: so no index on pull_guid, and half of each page free. A pull's rows are found by the
-- instances that it claimed.
set local lock_timeout = '2s'; -- users' writes wait behind this, so it waits for theirs a moment only
alter table pulls add instances uuid[] not null default '{}';
alter table pulls alter instances set storage external; -- GUIDs do not compress
comment on column pulls.instances is 'what it claimed: finds its rows in the queue, which has no index on pull_guid';

do $$
declare
    v_queue record;
    v_index regclass;
begin
    for v_queue in select q.name, to_regclass(quote_ident(q.table_name)) as queue from queues q where to_regclass(quote_ident(q.table_name)) is not null order by q.name loop
        execute format('lock table %s in access exclusive mode', v_queue.queue);
        execute format('update pulls p set instances = array(select q.instance_guid from %s q where q.pull_guid = p.pull_guid) where p.queue = $1', v_queue.queue)
        using v_queue.name;
        -- Both of them look at pull_guid.
        for v_index in select i.indexrelid::regclass from pg_index i where i.indrelid = v_queue.queue and i.indpred is not null loop
            execute format('drop index %s', v_index);
        end loop;
        execute format('create index on %s (changed_on)', v_queue.queue);
        execute format('alter table %s set (fillfactor = 45)', v_queue.queue);
    end loop;
end
$$;
alter table pulls alter instances drop default;
