-- The tables of the log in PostgreSQL beyond those of `schema.sql`.

-- The place of an event in the order of all (`postgres.sql`, tail): sequences are no such order, since a transaction that
-- took a number first may commit last.
alter table events add column position bigint not null;
create unique index events_by_position on events (position);

-- The time that events are stamped with: the database's, in microseconds.
create function now_us() returns bigint language sql volatile
as 'select (extract(epoch from clock_timestamp()) * 1000000)::bigint';
