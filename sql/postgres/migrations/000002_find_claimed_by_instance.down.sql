set local lock_timeout = '2s';
do $$
declare
    v_queue record;
    v_index regclass;
begin
    for v_queue in select to_regclass(quote_ident(q.table_name)) as queue from queues q where to_regclass(quote_ident(q.table_name)) is not null order by q.name loop
        execute format('lock table %s in access exclusive mode', v_queue.queue);
        for v_index in select i.indexrelid::regclass from pg_index i where i.indrelid = v_queue.queue and not i.indisprimary loop
            execute format('drop index %s', v_index);
        end loop;
        execute format('create index on %s (changed_on) where pull_guid is null', v_queue.queue);
        execute format('create index on %s (pull_guid) where pull_guid is not null', v_queue.queue);
        execute format('alter table %s set (fillfactor = 80)', v_queue.queue);
    end loop;
end
$$;
alter table pulls drop instances;
