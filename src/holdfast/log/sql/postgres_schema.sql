-- The tables of the log in PostgreSQL beyond those of `schema.sql`.

-- The place of an event in the order of all (`postgres.sql`, tail): sequences are no such order, since a transaction that
-- took a number first may commit last.
alter table events add column position bigint not null;
create unique index events_by_position on events (position);

-- The time that events are stamped with: the database's, in microseconds.
create function now_us() returns bigint language sql volatile
as 'select (extract(epoch from clock_timestamp()) * 1000000)::bigint';

-- The workers that may hold sessions, one row each. A worker lives until `beat_at` is longer ago than `ttl_s`, by the
-- clock of the database; none is dead within one lifetime of the start of the database: no one could beat while it was
-- away. `capacity` is the number of sessions that it runs at a time, 0 for a command. Rows change every few seconds, so
-- pages keep room for new versions.
create table workers (
    worker_id text primary key,
    place text not null,
    seat text not null,
    host text not null,
    program text not null,
    vocabulary bigint not null,
    capacity bigint not null,
    beat_at timestamptz not null,
    ttl_s double precision not null
) with (fillfactor = 50);

create view living as select * from workers
where clock_timestamp() < greatest(beat_at, pg_postmaster_start_time()) + ttl_s * interval '1 second';

-- The place that has the workspaces of a tree of sessions, empty before one has. Others can run the tree once no worker
-- lives there, if all its sessions `travels`, and `keeps`: their snapshots are in an object store.
create table trees (
    root text primary key,
    place text not null,
    travels boolean not null,
    keeps boolean not null
);
create index trees_by_place on trees (place);
