-- Version 7, also a step of new tables: several homes share a log.

-- The workers that may hold sessions, one row each. A worker lives until `beat_at` is longer ago than `ttl_s`, by the
-- clock of the database; none is dead within one lifetime of the start of the database: no one could beat while it was
-- away. `capacity` is the number of sessions that it runs at a time, 0 for a command. Rows change every few seconds, so
-- pages keep room for new versions.
drop table if exists workers;
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

-- True if other homes can run the tree. Volatile, so it sees a worker that began while a statement waited for the row.
create function may_leave(tree trees, wary boolean) returns boolean language sql volatile
as 'select tree.travels and tree.keeps and not exists (select 1 from workers where workers.place = tree.place
    and (wary or worker_id in (select worker_id from living)))';

insert into trees (root, place, travels, keeps)
select distinct root, coalesce((select value from meta where name = 'place'), ''), false, false
from sessions where root <> '';
delete from meta where name = 'place';
