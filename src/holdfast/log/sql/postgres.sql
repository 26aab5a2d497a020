-- Statements for PostgreSQL alone, by name; see `queries.sql`.

-- name: server
-- Settings of the server that the log depends on, and the tables that it has.
select current_setting('server_encoding') as encoding, current_setting('synchronous_commit') as commits,
    current_setting('transaction_read_only') as read_only, cast(current_setting('server_version_num') as integer),
    to_regclass('meta') is not null, pg_backend_pid();

-- name: health
-- What decides whether acknowledged commits survive, the time, and the connections that are left.
select current_setting('server_version'), current_setting('fsync') = 'on' and current_setting('full_page_writes') = 'on',
    (select count(*) from pg_stat_replication), current_setting('synchronous_commit') <> 'local' and (
        current_setting('synchronous_standby_names') <> ''
        or exists (select 1 from pg_stat_replication where sync_state in ('sync', 'quorum'))
    ),
    (extract(epoch from clock_timestamp()) * 1000000)::bigint,
    current_setting('max_connections')::bigint
        - (select count(*) from pg_stat_activity where backend_type = 'client backend');

-- name: ahead
-- True if an event has a position that this server has yet to give out: the tables came from another one.
select coalesce(max(position), 0) >> 20 >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint from events;

-- name: renumber
update events set position = numbered.place
from (select session_id, seq, row_number() over (order by position) as place from events) as numbered
where events.session_id = numbered.session_id and events.seq = numbered.seq;

-- name: share_home
select pg_advisory_xact_lock_shared(hashtextextended(:home, 0));

-- name: lock_sessions
-- Locks in the order of the array.
select pg_advisory_xact_lock(hashtextextended(name, 0)) from unnest(cast(:names as text[])) as each(name);

-- name: lock_accounts
select pg_advisory_xact_lock(hashtextextended(name, 1)) from unnest(cast(:names as text[])) as each(name);

-- name: lock_limits
select pg_advisory_xact_lock(hashtextextended(name, 3)) from unnest(cast(:names as text[])) as each(name);

-- name: locked_sessions
-- The time of the database, and the rows of the sessions that exist, each in the order of SessionRow, with its vocabulary.
select now_us(), session_id, key, goal, model, workspace, accounts, created_us, updated_us, head, head_hash, epoch,
    status, reason, detail, holder, due_us, turns, cost_pico, input_tokens, output_tokens,
    parent, root, depth, owner, name, origin, origin_seq, marks, boot_id, due_boot_us, vocabulary
from unnest(cast(:names as text[])) as each(wanted) left join sessions on session_id = wanted;

-- name: locked_accounts
select account_id, cap_pico, spent_pico, reserved_pico, cap_day_pico, cap_week_pico, caps_us, spend
from accounts where account_id = any(cast(:names as text[]));

-- name: insert_event
-- The position is that of the transaction, then of the event in it.
insert into events (position, session_id, seq, epoch, at_us, type, hash, body, digest)
values ((pg_current_xact_id()::text::bigint << 20) + ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: append_one
-- An append of one event that changes nothing but its session, decided on a row from memory and with the time from memory.
-- If another writer was faster, or the time is wrong, it changes nothing. The time of the database comes back.
with moved as (
    {update_session} and head_hash = :was_hash and abs(now_us() - :at_us) < :tolerance_us returning 1
), stored as (
    insert into events (position, session_id, seq, epoch, at_us, type, hash, body)
    select pg_current_xact_id()::text::bigint << 20, :session_id, :head, :at_epoch, :at_us, :type, :head_hash, :body
    from moved
)
select (select count(*) from moved), now_us();

-- name: tail
-- Events of all sessions after a position, in the order in which their transactions took their numbers. One with a
-- number may still be open; its events, and all with a greater position, are left for later, so that none is skipped.
select position, session_id, seq, epoch, at_us, type, hash, body, digest from events
where position > :after and position < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20
order by position limit :count;

-- name: tail_end
select coalesce(max(position), 0) from events
where position < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20;

-- name: events_at
-- The events at positions, each with its session; a large body comes along.
select session_id, seq, epoch, at_us, type, hash,
    coalesce(body, (select bytes from blobs where blobs.digest = events.digest)), digest
from unnest(cast(:names as text[]), cast(:seqs as bigint[])) as each(session_id, seq)
    join events using (session_id, seq);

-- name: moves
-- The position below which all transactions have ended, and events after the one that was found last time.
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20,
    array(select position from events where position >= :floor order by position);

-- name: ring
-- Says which sessions are due, each with the place that has its tree; without any, that a worker has left.
select pg_notify('holdfast ' || current_schema(), coalesce(session_id || ' ' || place, ''))
from unnest(cast(:names as text[])) as each(wanted)
    left join sessions on session_id = wanted left join trees using (root);

-- name: beat
insert into workers (worker_id, place, seat, host, program, vocabulary, capacity, beat_at, ttl_s)
select name, :place, :seat, :host, :program, :vocabulary, capacity, clock_timestamp(), cast(:ttl_s as double precision)
from unnest(cast(:names as text[]), cast(:limits as bigint[])) as each(name, capacity)
on conflict (worker_id) do update set capacity = excluded.capacity, beat_at = excluded.beat_at, ttl_s = excluded.ttl_s;

-- name: leave
delete from workers where worker_id = any(cast(:names as text[]));

-- name: forget_workers
-- Removes rows of workers that died long ago.
delete from workers where beat_at < clock_timestamp() - interval '1 hour';

-- name: living
-- Those of the workers that may live, with their seats. With `wary`, a worker lives that has a row at all.
select worker_id, seat from workers
where worker_id = any(cast(:names as text[])) and (:wary or worker_id in (select worker_id from living));

-- name: others_at
-- A worker that lives at a place, but on another seat.
select worker_id, host from living where place = :place and seat <> :seat limit 1;

-- name: fleet
-- All workers that live, with the number of sessions that each holds.
select worker_id, place, host, program, vocabulary, capacity,
    (select count(*) from sessions where holder <> '' and holder = worker_id),
    (extract(epoch from clock_timestamp() - beat_at) * 1000000)::bigint
from living order by place, worker_id;

-- name: standing
-- Those of the sessions that a place does not have. True for those that it cannot run: their tree is at another place and
-- may not leave it, or that has other settings, or they have events that this program does not know.
select session_id, vocabulary > :vocabulary
    or (place not in ('', :place) and not (may_leave(trees, :wary) and same_settings(place, :settings)))
from unnest(cast(:names as text[])) as each(wanted) join sessions on session_id = wanted join trees using (root)
where place <> :place or vocabulary > :vocabulary;

-- name: served
-- True if a worker that lives can run a session; without one, if any worker lives.
select exists (select 1 from living where capacity > 0 and vocabulary >= :vocabulary and not exists (
    select 1 from sessions join trees using (root) where session_id = :session_id
    and trees.place not in ('', living.place) and not (may_leave(trees, false) and same_settings(trees.place,
        (select settings from places where place = living.place)))));

-- name: open_tree
insert into trees (root, place, travels, keeps) values (:root, :place, :travels, false)
on conflict (root) do update set travels = trees.travels and excluded.travels,
    place = case trees.place when '' then excluded.place else trees.place end;

-- name: take_tree
-- Makes a place that of a tree. No row comes back if it is another one that the tree may not leave.
insert into trees (root, place, travels, keeps) values (:root, :place, false, :keeps)
on conflict (root) do update set place = excluded.place, keeps = excluded.keeps
where trees.place in ('', excluded.place) or (may_leave(trees, :wary) and same_settings(trees.place, :settings))
returning 1;

-- name: tree
-- The place of a tree, and a worker that lives there.
select trees.place, coalesce(host, ''), coalesce(worker_id, '')
from trees left join living on living.place = trees.place where root = :root order by capacity desc nulls last limit 1;

-- name: keep_settings
insert into places (place, settings) values (:place, :settings)
on conflict (place) do update set settings = excluded.settings where places.settings <> excluded.settings;

-- name: settings
-- The settings of the other homes that have sessions.
select place, settings from places where place <> :place and place in (select place from trees);

-- name: remove_tree
delete from trees where root = :root;

-- name: settle
-- Makes a place that of all trees that have none.
insert into trees (root, place, travels, keeps) select distinct root, :place, false, false from sessions where root <> ''
on conflict (root) do nothing;

-- name: lost_places
-- Other places that have trees, and no worker that lives.
select place, count(*) from trees
where place not in ('', :place) and place not in (select place from living) group by place order by place;

-- name: living_at
select count(*) from living where place = :place;

-- name: move_trees
update trees set place = :place where place = :former;

-- name: outage
-- A model that is out: the text that a home told, and the microseconds until it may be asked again.
select substr(value, strpos(value, ' ') + 1), split_part(value, ' ', 1)::bigint - now_us() from meta where name = :name;

-- name: tell_outage
insert into meta (name, value) values (:name, (now_us() + :wait_us)::text || ' ' || :says)
on conflict (name) do update set value = excluded.value;

-- name: forget_outage
delete from meta where name = :name;
