-- weir_gi_instance_changed: a view to tag one instance by hand, in the caller's transaction:
--   insert into weir_gi_instance_changed (instance_guid, concept_guid, change_type, old_primary_key) values (...)
-- A GUID is text or 16 bytes. The tag goes by the inbox: the fold finds the queues of the concept's captures (the default
-- queue where there is none), and lets the row's presence decide between inserted and deleted where a capture knows it.
create view weir_gi_instance_changed (instance_guid, concept_guid, change_type, old_primary_key)
as select null, null, null, null where 0;

create trigger weir_gi_instance_changed_insert instead of insert on weir_gi_instance_changed
begin
    select raise(abort, 'weir: weir_gi_instance_changed needs an instance_guid that is a GUID')
    where {{.Instance.Valid}} is not 1;
    select raise(abort, 'weir: weir_gi_instance_changed needs a change_type of 1 to 40 characters')
    where coalesce(length(new.change_type), 0) not between 1 and 40;
    insert into weir_inbox (instance_guid, change_type, changed_on, concept_guid, old_primary_key, capture_id)
    values ({{.Instance.Text}}, new.change_type, {{.Now}}, {{.Concept.Text}}, new.old_primary_key, null);
end;
