-- The sample source, run by psql in the database shop when the container's data
-- is new; and the target, empty.
create database warehouse;

create table customers (
    id   bigint generated always as identity primary key,
    name text not null,
    mail text not null unique
);

create table orders (
    id          bigint generated always as identity primary key,
    customer_id bigint not null references customers on delete cascade,
    placed_on   timestamptz not null default now(),
    total       numeric(12, 2) not null check (total >= 0)
);

insert into customers (name, mail)
select 'Customer ' || n, 'customer' || n || '@example.com'
from generate_series(1, 100) n;

insert into orders (customer_id, total)
select 1 + n % 100, n * 1.25
from generate_series(1, 1000) n;
