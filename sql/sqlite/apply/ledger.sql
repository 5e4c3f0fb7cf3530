create table if not exists weir_ledger (
    pull_guid  text    not null primary key,
    state      text    not null check (state in ('committed', 'revoked')),
    decided_on integer not null
) without rowid;
create table if not exists weir_ledger_identity (
    one    integer not null primary key check (one = 1),
    ledger text    not null
);
