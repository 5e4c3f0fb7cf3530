-- queues_of(capture, concept, change type): the queues that a tag goes to. A capture knows its queues; a tag of other
-- code goes to those of the captures of its concept, and to the default queue where there is none.
create or replace function {{.Schema}}.queues_of(i_capture integer, i_concept_guid uuid, i_change_type text)
returns setof text
language plpgsql
stable
as $weir$
begin
    return query select cq.queue from {{.Schema}}.capture_queues cq where cq.capture_id = i_capture order by cq.queue;
    if found then
        return;
    end if;
    return query
        select distinct cq.queue
        from {{.Schema}}.captures c
        join {{.Schema}}.capture_queues cq using (capture_id)
        where (c.concept_guid = i_concept_guid or c.concept_guid is null)
          and c.change_type = case when i_change_type in ('Instance Inserted', 'Instance Deleted') then '' else i_change_type end
        order by cq.queue;
    if not found then
        return next 'default';
    end if;
end
$weir$
