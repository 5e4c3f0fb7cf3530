-- fold_slice(limit, offset): one try of fold. Raises lock_not_available when a row cannot be had in a moment.
create or replace function {{.Schema}}.fold_slice(i_limit integer, i_offset integer)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan -- the arrays' sizes decide the joins
set jit = off
as $weir$
declare
    v_taken      integer;
    v_guids      uuid[];
    v_types      text[];
    v_on         timestamptz[];
    v_concepts   uuid[];
    v_keys       text[];
    v_captures   integer[];
    v_capture    integer;
    v_ask_guids  uuid[];
    v_ask_keys   text[];
    v_present    uuid[];
    v_there      boolean;
    v_busy       uuid[];
    r            record;
begin
    -- The latest tag of each instance; the two types of a row's own are one.
    with taken as (
        delete from {{.Schema}}.inbox i
        where i.ctid = any (array(select n.ctid from {{.Schema}}.inbox n limit i_limit offset i_offset for update skip locked))
        returning i.*
    ), latest as (
        select distinct on (t.instance_guid, t.class) t.*
        from (select case when i.change_type in ('Instance Inserted', 'Instance Deleted') then '' else i.change_type::text end as class, i.* from taken i) t
        order by t.instance_guid, t.class, t.changed_on desc
    )
    select (select count(*) from taken), array_agg(l.instance_guid), array_agg(l.change_type::text), array_agg(l.changed_on),
           array_agg(l.concept_guid), array_agg(l.old_primary_key), array_agg(l.capture_id)
    into v_taken, v_guids, v_types, v_on, v_concepts, v_keys, v_captures
    from latest l;
    if v_guids is null then
        return 0;
    end if;

    -- Inserted or deleted? The row's presence decides, where a capture knows the table.
    for v_capture in select distinct c from unnest(v_captures) c where c is not null loop
        continue when to_regprocedure(format('%I.capture_%s_present(uuid[],text[])', {{.SchemaLiteral}}, v_capture)) is null;
        select array_agg(t.guid), array_agg(t.key)
        into v_ask_guids, v_ask_keys
        from unnest(v_guids, v_keys, v_captures, v_types) t (guid, key, capture, type)
        where t.capture = v_capture and t.type in ('Instance Inserted', 'Instance Deleted');
        continue when v_ask_guids is null;
        begin
            execute format('select {{.Schema}}.capture_%s_present($1, $2)', v_capture) into v_present using v_ask_guids, v_ask_keys;
        exception when undefined_table or undefined_column or insufficient_privilege or data_exception then
            continue; -- the table is not as captured: the latest tag stands, and the read says what is wrong
        end;
        select array_agg(case
                   when t.capture is distinct from v_capture or t.type not in ('Instance Inserted', 'Instance Deleted') then t.type
                   when p.guid is null then 'Instance Deleted'
                   else 'Instance Inserted'
               end order by t.place)
        into v_types
        from unnest(v_guids, v_types, v_captures) with ordinality t (guid, type, capture, place)
        left join (select distinct g from unnest(v_present) g) p (guid) on p.guid = t.guid;
    end loop;

    for r in
        with tags as (
            select * from unnest(v_guids, v_types, v_on, v_concepts, v_keys, v_captures) t (guid, type, changed_on, concept, key, capture)
        ), routes as materialized (
            select d.*, q.queue
            from (select distinct t.capture, t.concept, t.type from tags t) d
            cross join lateral {{.Schema}}.queues_of(d.capture, d.concept, d.type) q (queue)
        )
        select x.queue, x.table_name, x.type, array_agg(x.guid) as guids, array_agg(x.changed_on) as changed_on,
               array_agg(x.concept) as concepts, array_agg(x.key) as keys, array_agg(x.capture) as captures
        from (select q.name as queue, q.table_name, t.*
              from tags t
              join routes o on o.capture is not distinct from t.capture and o.concept is not distinct from t.concept and o.type = t.type
              join {{.Schema}}.queues q on q.name = o.queue
              order by q.name, t.type, t.guid) x
        group by x.queue, x.table_name, x.type
        order by x.queue, x.type
    loop
        -- What others hold goes back to the inbox: a fold that holds locks waits for none of theirs.
        execute format('select exists (select from {{.Schema}}.%I q where q.instance_guid = any ($1) and q.change_type = any ($2))', r.table_name)
        into v_there
        using r.guids, case when r.type in ('Instance Inserted', 'Instance Deleted') then array['Instance Deleted', 'Instance Inserted'] else array[r.type] end;
        v_busy := null;
        if v_there then
            execute format($$
                with there as materialized (
                    select h.ctid from {{.Schema}}.%1$I h where h.instance_guid = any ($1) and h.change_type = any ($2)
                ), locked as materialized (
                    select q.instance_guid, q.change_type
                    from {{.Schema}}.%1$I q
                    where q.ctid = any (array(select h.ctid from there h)) -- by place, as settle does; the key stays
                    order by q.instance_guid, q.change_type
                    for update skip locked
                )
                select array_agg(distinct q.instance_guid)
                from {{.Schema}}.%1$I q
                where q.instance_guid = any ($1) and q.change_type = any ($2)
                  and not exists (select from locked l where l.instance_guid = q.instance_guid and l.change_type = q.change_type)
            $$, r.table_name)
            into v_busy
            using r.guids, case when r.type in ('Instance Inserted', 'Instance Deleted') then array['Instance Deleted', 'Instance Inserted'] else array[r.type] end;
        end if;
        if v_busy is not null then
            insert into {{.Schema}}.inbox (instance_guid, change_type, changed_on, concept_guid, old_primary_key, capture_id)
            select t.guid, r.type, t.changed_on, t.concept, t.key, t.capture
            from unnest(r.guids, r.changed_on, r.concepts, r.keys, r.captures) t (guid, changed_on, concept, key, capture)
            where t.guid = any (v_busy);
            v_taken := v_taken - cardinality(v_busy);
            select array_agg(t.guid order by t.guid), array_agg(t.changed_on order by t.guid), array_agg(t.concept order by t.guid),
                   array_agg(t.key order by t.guid), array_agg(t.capture order by t.guid)
            into r.guids, r.changed_on, r.concepts, r.keys, r.captures
            from unnest(r.guids, r.changed_on, r.concepts, r.keys, r.captures) t (guid, changed_on, concept, key, capture)
            where t.guid <> all (v_busy);
            continue when r.guids is null;
        end if;
        execute format('select {{.Schema}}.%I($1, $2, $3, $4, $5, $6)', 'tag_' || r.queue)
        using r.type, r.guids, r.changed_on, r.concepts, r.keys, r.captures;
    end loop;
    return greatest(v_taken, 0);
end
$weir$
