create table if not exists {{.Table}} (
    instance_guid       text    not null check (instance_guid glob
        '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
    change_type         text    not null check (length(change_type) between 1 and 40),
    changed_on          integer not null,
    concept_guid        text,
    pull_guid           text,
    old_primary_key     text,
    waits_for_pull_guid text,
    capture_id          integer,
    attempts            integer,
    not_before          integer,
    instance_key        text,
    primary key (instance_guid, change_type)
) without rowid
