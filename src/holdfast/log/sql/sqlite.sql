-- Statements for SQLite alone, by name; see `queries.sql`.

-- name: insert_event
insert into events (session_id, seq, epoch, at_us, type, hash, body, digest)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: tail
-- Events of all sessions after a position, in the order in which they were stored. SQLite numbers them (`rowid`), and
-- reuses a number only after the latest events were removed: a reader that keeps a position keeps the event's hash too.
select rowid, session_id, seq, epoch, at_us, type, hash, body, digest from events
where rowid > :after order by rowid limit :count;

-- name: tail_end
select coalesce(max(rowid), 0) from events;

-- name: removal
-- The record of a removed session, in the home's log.
select 1 from events e left join blobs b on b.digest = e.digest
where e.session_id = :home and e.type = 'sessions.removed' and instr(coalesce(e.body, b.bytes), :quoted) > 0 limit 1;
