-- The ledger: which pulls committed here, and which never may. Made once, in the schema of the target's tables.
create table if not exists {{.Schema}}.weir_ledger (
    pull_guid  uuid        not null primary key,
    state      text        not null check (state in ('committed', 'revoked')),
    decided_on timestamptz not null default clock_timestamp()
);
comment on table {{.Schema}}.weir_ledger is 'Each pull is committed here or revoked, never both. Revoked rows are kept: they bar a puller that was only paused.';
create table if not exists {{.Schema}}.weir_ledger_identity (
    only_row boolean not null primary key default true check (only_row),
    ledger   uuid    not null default gen_random_uuid()
);
comment on table {{.Schema}}.weir_ledger_identity is 'Who this ledger is: a pull is recovered into the ledger that it was claimed for, or not at all.';
insert into {{.Schema}}.weir_ledger_identity default values on conflict do nothing;
