-- weir's own tables. Names are unqualified: the migrating connection's search_path is weir's schema.

create table queues (
    name       text     not null primary key,
    table_name name     not null unique
);
comment on table queues is 'One row a queue. Its row lock orders the claims of the queue.';

-- The default queue. Further queues are copies of it (create_queue).
create table instance_changes (
    instance_guid       uuid                    not null,
    change_type         varchar(40) collate "C" not null,
    changed_on          timestamptz             not null,
    concept_guid        uuid,
    pull_guid           uuid,
    old_primary_key     text collate "C",
    waits_for_pull_guid uuid,
    capture_id          integer,
    attempts            integer,
    not_before          timestamptz,
    constraint instance_changes_pkey primary key (instance_guid, change_type)
) with (
    -- Rows live for a moment: leave room for the claim's new versions, and vacuum by a fixed count.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index instance_changes_unclaimed on instance_changes (changed_on) where pull_guid is null;
create index instance_changes_pull on instance_changes (pull_guid) where pull_guid is not null;
comment on table instance_changes is 'The queue: the latest change of each instance and type. A change carries its key, never its data.';
comment on column instance_changes.instance_guid is 'the instance; of a plain table derived from its concept and key';
comment on column instance_changes.change_type is 'Instance Inserted, Instance Deleted, or a name of the user''s own';
comment on column instance_changes.changed_on is 'when it was tagged last; orders claims, decides nothing else';
comment on column instance_changes.concept_guid is 'the kind of thing that the instance is';
comment on column instance_changes.pull_guid is 'the pull that has it in flight';
comment on column instance_changes.old_primary_key is 'the key as text: of one column its value, of several a JSON array of texts';
comment on column instance_changes.waits_for_pull_guid is 'an earlier version is in flight in that pull; not claimable while it lives';
comment on column instance_changes.capture_id is 'the capture that tagged it; null where other code did';
comment on column instance_changes.attempts is 'how often this version was at fault; null is 0';
comment on column instance_changes.not_before is 'postponed until then; infinity is a dead letter';
insert into queues values ('default', 'instance_changes');

-- Tags that are not coalesced yet. No key and no index: an append waits for nobody.
create table inbox (
    instance_guid   uuid                    not null,
    change_type     varchar(40) collate "C" not null,
    changed_on      timestamptz             not null,
    concept_guid    uuid,
    old_primary_key text collate "C",
    capture_id      integer
) with (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table inbox is 'Tags of deferred captures and of transactions above READ COMMITTED, until the puller folds them into the queues.';

create table pulls (
    pull_guid   uuid        not null primary key,
    name        text        not null,
    queue       text        not null,
    puller      text        not null,
    ledger      uuid        not null,
    state       text        not null check (state in ('claimed', 'settled', 'released')),
    claimed_on  timestamptz not null,
    lease_until timestamptz not null,
    rows        integer     not null
);
comment on table pulls is 'One row a live pull. A settled or released pull stays while a queue row still names it.';

create table failures (
    queue         text                    not null,
    instance_guid uuid                    not null,
    change_type   varchar(40) collate "C" not null,
    failed_on     timestamptz             not null,
    last_error    text                    not null,
    primary key (queue, instance_guid, change_type)
);
comment on table failures is 'Why a change was postponed last. Attempts and the next attempt stand in the queue''s row.';

create table captures (
    capture_id      integer not null primary key check (capture_id > 0),
    table_schema    name    not null,
    table_name      name    not null,
    table_oid       oid     not null,
    kind            text    not null check (kind in ('plain', 'instance', 'child')),
    change_type     text    not null,
    concept_guid    uuid,
    concept_column  name,
    guid_column     name,
    old_key_column  name,
    key_columns     name[]  not null,
    key_types       text[]  not null,
    is_set          boolean not null,
    row_key         name[]  not null,
    tagging         text    not null check (tagging in ('at once', 'deferred')),
    refuse_truncate boolean not null,
    unique (table_schema, table_name, change_type)
);
comment on table captures is 'What is captured, as installed. table_oid tells a table made again, or a restored database, from the one captured.';

create table capture_queues (
    capture_id integer not null references captures on delete cascade,
    queue      text    not null references queues,
    primary key (capture_id, queue)
);

create table backfills (
    capture_id integer     not null primary key references captures on delete cascade,
    last_key   text[],
    tagged     bigint      not null,
    started_on timestamptz not null,
    done_on    timestamptz
);
comment on table backfills is 'How far each capture''s backfill has come: last_key in the order of the key.';
