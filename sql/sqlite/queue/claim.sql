-- claim: takes changes of a queue into a pull, in a transaction that has the write lock (BEGIN IMMEDIATE).
-- ?1 pull, ?2 now, ?3 limit, ?4 captures, ?5 concepts, ?6 change types (JSON arrays, null: all), ?7 from (null: all).
-- Both types of one row can be here at once when other code tags it. They go one after the other: what is in flight, in
-- this version or an earlier one, or older and just as claimable, holds the other back.
update {{.Table}}
set pull_guid = ?1, waits_for_pull_guid = null
where (instance_guid, change_type) in (
    select q.instance_guid, q.change_type
    from {{.Table}} q
    where q.pull_guid is null
      and (?7 is null or q.changed_on >= ?7)
      and (q.not_before is null or q.not_before <= ?2)
      and (?4 is null or q.capture_id in (select value from json_each(?4))
           or q.capture_id is null and exists (
               select 1 from weir_captures c
               where c.capture_id in (select value from json_each(?4)) and (c.concept_guid = q.concept_guid or c.concept_guid is null)))
      and (?5 is null or q.concept_guid in (select value from json_each(?5)))
      and (?6 is null or q.change_type in (select value from json_each(?6)))
      and (q.waits_for_pull_guid is null or not exists (
              select 1 from weir_pulls p where p.pull_guid = q.waits_for_pull_guid and p.state = 'claimed'))
      and (q.change_type not in ('Instance Inserted', 'Instance Deleted') or not exists (
              select 1 from {{.Table}} s
              where s.instance_guid = q.instance_guid
                and s.change_type = case q.change_type when 'Instance Inserted' then 'Instance Deleted' else 'Instance Inserted' end
                and (exists (
                         select 1 from weir_pulls p where p.pull_guid in (s.pull_guid, s.waits_for_pull_guid) and p.state = 'claimed')
                     or s.pull_guid is null
                        and (s.changed_on, s.change_type) < (q.changed_on, q.change_type)
                        and (s.not_before is null or s.not_before <= ?2)
                        and (?6 is null or s.change_type in (select value from json_each(?6))))))
    order by q.changed_on
    limit ?3
)
returning instance_guid, change_type, changed_on, coalesce(concept_guid, ''), old_primary_key, coalesce(capture_id, 0), coalesce(attempts, 0), instance_key
