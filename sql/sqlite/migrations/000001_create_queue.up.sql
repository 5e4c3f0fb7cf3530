-- weir's own tables. A GUID is text of 36 characters, lower case, so that it
-- sorts as its bytes; a time is an integer of microseconds since 1970 in UTC
-- (datetime(changed_on / 1000000, 'unixepoch') shows it).
-- Every statement may run again: a migration that committed just before its
-- version was written is simply repeated.

create table if not exists weir_queues (
    name       text not null primary key,
    table_name text not null unique
) without rowid;

-- The default queue. Further queues have the same columns.
create table if not exists weir_instance_changes (
    instance_guid       text    not null check (instance_guid glob
        '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
    change_type         text    not null check (length(change_type) between 1 and 40),
    changed_on          integer not null,
    concept_guid        text,
    pull_guid           text,
    old_primary_key     text,            -- the key as SQL literals, joined by commas
    waits_for_pull_guid text,            -- an earlier version is in flight in that pull
    capture_id          integer,         -- null where other code tagged it
    attempts            integer,         -- how often this version was at fault
    not_before          integer,         -- postponed until then; 9223372036854775807 is a dead letter
    instance_key        text,            -- the GUID as the table spells it, where that is not lower case
    primary key (instance_guid, change_type)
) without rowid;
create index if not exists weir_instance_changes_unclaimed on weir_instance_changes (changed_on) where pull_guid is null;
create index if not exists weir_instance_changes_pull on weir_instance_changes (pull_guid) where pull_guid is not null;
insert into weir_queues values ('default', 'weir_instance_changes') on conflict do nothing;

-- Tags that are not coalesced yet.
create table if not exists weir_inbox (
    id              integer not null primary key,
    instance_guid   text    not null check (instance_guid glob
        '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
    change_type     text    not null,
    changed_on      integer not null,
    concept_guid    text,
    old_primary_key text,
    capture_id      integer,
    instance_key    text
);

create table if not exists weir_pulls (
    pull_guid   text    not null primary key,
    name        text    not null,
    queue       text    not null,
    puller      text    not null,
    ledger      text    not null,
    state       text    not null check (state in ('claimed', 'settled', 'released')),
    claimed_on  integer not null,
    lease_until integer not null,
    rows        integer not null
) without rowid;

create table if not exists weir_failures (
    queue         text    not null,
    instance_guid text    not null,
    change_type   text    not null,
    failed_on     integer not null,
    last_error    text    not null,
    primary key (queue, instance_guid, change_type)
) without rowid;

create table if not exists weir_captures (
    capture_id      integer not null primary key check (capture_id > 0),
    table_name      text    not null,
    kind            text    not null check (kind in ('plain', 'instance', 'child')),
    change_type     text    not null,
    concept_guid    text,
    concept_column  text,
    old_key_column  text,
    key_columns     text    not null,    -- JSON array of names
    key_types       text    not null,    -- JSON array of the declared types
    is_set          integer not null,
    row_key         text    not null,    -- JSON array of names
    tagging         text    not null check (tagging in ('at once', 'deferred')),
    unique (table_name, change_type)
);

create table if not exists weir_capture_queues (
    capture_id integer not null,
    queue      text    not null,
    primary key (capture_id, queue)
) without rowid;

create table if not exists weir_backfills (
    capture_id integer not null primary key,
    last_key   text,
    tagged     integer not null,
    estimate   integer not null,
    started_on integer not null,
    done_on    integer
);
