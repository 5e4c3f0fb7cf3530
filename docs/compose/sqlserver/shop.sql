-- The sample source on SQL Server, run by sqlcmd at every start: what is there
-- already stays as it is.
if db_id(N'shop') is null create database shop;
go
use shop;
go
if object_id(N'dbo.customers') is null
begin
    create table dbo.customers (
        id   bigint identity not null constraint pk_customers primary key,
        name nvarchar(100) not null,
        mail nvarchar(200) not null constraint uq_customers_mail unique
    );

    insert into dbo.customers (name, mail)
    select concat(N'Customer ', n.value), concat(N'customer', n.value, N'@example.com')
    from openjson(N'[' + replicate(cast(N'0,' as nvarchar(max)), 99) + N'0]') as j
    cross apply (select cast(j.[key] as int) + 1 as value) as n;
end;
go
if object_id(N'dbo.orders') is null
begin
    create table dbo.orders (
        id          bigint identity not null constraint pk_orders primary key,
        customer_id bigint not null constraint fk_orders_customer references dbo.customers (id) on delete cascade,
        placed_on   datetimeoffset(3) not null constraint df_orders_placed_on default sysdatetimeoffset(),
        total       decimal(12, 2) not null constraint ck_orders_total check (total >= 0)
    );

    insert into dbo.orders (customer_id, total)
    select 1 + n.value % 100, n.value * 1.25
    from openjson(N'[' + replicate(cast(N'0,' as nvarchar(max)), 999) + N'0]') as j
    cross apply (select cast(j.[key] as int) + 1 as value) as n;
end;
go
