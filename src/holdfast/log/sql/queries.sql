-- Statements of the log, by name, for SQLite and PostgreSQL; `sqlite.sql` and `postgres.sql` have those that differ.
-- The two statements of every append take their values by position, which binds faster; the others by name.

-- name: schema_version
-- The version of the tables, as text.
select value from meta where name = 'schema';

-- name: set_schema_version
insert into meta (name, value) values ('schema', :version)
on conflict (name) do update set value = excluded.value;

-- name: session
-- One session's row, in the order of SessionRow.
select session_id, key, goal, model, workspace, accounts, created_us, updated_us, head, head_hash, epoch,
    status, reason, detail, holder, due_us, turns, cost_pico, input_tokens, output_tokens,
    parent, root, depth, owner, name, origin, origin_seq, marks, boot_id, due_boot_us
from sessions where session_id = :session_id;

-- name: sessions
-- A page of rows, newest first. The conditions of the filter are put in by name.
select session_id, key, goal, model, workspace, accounts, created_us, updated_us, head, head_hash, epoch,
    status, reason, detail, holder, due_us, turns, cost_pico, input_tokens, output_tokens,
    parent, root, depth, owner, name, origin, origin_seq, marks, boot_id, due_boot_us
from sessions where {conditions} order by created_us desc, session_id desc limit :count;

-- name: sessions_count
select count(*) from sessions where {conditions};

-- name: counts
-- The number of sessions of each status, without the home's own log: one partial index for each.
select 'runnable', count(*) from sessions where status = 'runnable'
union all select 'parked', count(*) from sessions where status = 'parked'
union all select 'done', count(*) from sessions where status = 'done'
union all select 'failed', count(*) from sessions where status = 'failed'
union all select 'cancelled', count(*) from sessions where status = 'cancelled'
union all select status, -1 from sessions where session_id = :home;

-- name: sessions_like
-- Ids of sessions whose id or key begins with the text, or whose id ends with it; three are enough for "not unique".
select session_id from sessions
where (substr(session_id, 1, length(:prefix)) = :prefix or substr(key, 1, length(:prefix)) = :prefix
        or (:tail <> '' and substr(session_id, length(session_id) - length(:tail) + 1) = :tail))
    and session_id <> :home
order by session_id limit 3;

-- name: session_by_key
select session_id from sessions where key = :key and key <> '';

-- name: session_head
select head from sessions where session_id = :session_id;

-- name: vocabulary
-- The highest schema version among a session's bodies.
select vocabulary from sessions where session_id = :session_id;

-- name: vocabularies
select session_id, vocabulary from sessions;

-- name: due
-- Sessions to look at by now, longest due first: `session.rows.due_at` as a statement, one index for each part.
-- A time in the future was stamped before the clock was set back: it must not let others go first again and again.
select session_id, holder, root, accounts, model, due_us from (
select session_id, holder, root, accounts, model, due_us from sessions where due_us <= :now_us
union select session_id, holder, root, accounts, model, due_us from sessions where status = 'runnable' and due_us is not null
union select session_id, holder, root, accounts, model, due_us from sessions where boot_id = :boot_id and due_boot_us <= :up_us
union select session_id, holder, root, accounts, model, due_us from sessions
    where status = 'parked' and due_us is not null and updated_us > :future_us
) as due order by case when due_us <= :now_us then due_us else 0 end, session_id;

-- name: due_later
-- The next time of a parked session after now, by the wall clock and by the uptime.
select (select min(due_us) from sessions where due_us > :now_us and status = 'parked'),
    (select min(due_boot_us) from sessions where boot_id = :boot_id and due_boot_us > :up_us);

-- name: held
-- Sessions whose shift has not ended; whether its worker lives is the kernel's word, not ours.
select session_id, holder, accounts, model from sessions where holder <> '';

-- name: used_us
-- The time until which the rate of a limit is used up. It follows from no event: without it, the rate allows a burst.
select value from meta where name = :name;

-- name: save_used_us
insert into meta (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;

-- name: insert_session
insert into sessions (session_id, key, goal, model, workspace, accounts, created_us, updated_us, head, head_hash,
    epoch, status, reason, detail, holder, due_us, turns, cost_pico, input_tokens, output_tokens, parent, root,
    depth, owner, name, origin, origin_seq, marks, boot_id, due_boot_us, vocabulary)
values (:session_id, :key, :goal, :model, :workspace, :accounts, :created_us, :updated_us, :head, :head_hash,
    :epoch, :status, :reason, :detail, :holder, :due_us, :turns, :cost_pico, :input_tokens, :output_tokens,
    :parent, :root, :depth, :owner, :name, :origin, :origin_seq, :marks, :boot_id, :due_boot_us, :vocabulary);

-- name: move_session
-- Most appends move only the head. No row changes when another writer was faster.
-- Head, its hash, epoch, time, vocabulary twice, session, head before.
update sessions set head = ?, head_hash = ?, epoch = ?, updated_us = ?,
    vocabulary = case when vocabulary > ? then vocabulary else ? end
where session_id = ? and head = ?;

-- name: update_session
-- The whole row; `vocabulary` never goes down.
update sessions set key = :key, goal = :goal, model = :model, workspace = :workspace, accounts = :accounts,
    created_us = :created_us, updated_us = :updated_us, head = :head, head_hash = :head_hash, epoch = :epoch,
    status = :status, reason = :reason, detail = :detail, holder = :holder, due_us = :due_us, turns = :turns,
    cost_pico = :cost_pico, input_tokens = :input_tokens, output_tokens = :output_tokens,
    parent = :parent, root = :root, depth = :depth, owner = :owner, name = :name,
    origin = :origin, origin_seq = :origin_seq, marks = :marks,
    boot_id = :boot_id, due_boot_us = :due_boot_us,
    vocabulary = case when vocabulary > :vocabulary then vocabulary else :vocabulary end
where session_id = :session_id and head = :was;

-- name: events
-- Events after a position, in order.
select seq, epoch, at_us, type, hash, body, digest from events
where session_id = :session_id and seq > :after order by seq limit :count;

-- name: event_hash
select hash from events where session_id = :session_id and seq = :seq;

-- name: event_link
select hash, epoch from events where session_id = :session_id and seq = :seq;

-- name: session_ids
-- Every session that has a row or an event.
select session_id from sessions union select session_id from events order by session_id;

-- name: insert_blob
insert into blobs (digest, bytes) values (:digest, :bytes) on conflict (digest) do nothing;

-- name: blob
select bytes from blobs where digest = :digest;

-- name: insert_post
insert into posts (session_id, key, seq) values (:session_id, :key, :seq);

-- name: post
select seq from posts where session_id = :session_id and key = :key;

-- name: posts
select session_id, key, seq from posts;

-- name: account
select account_id, cap_pico, spent_pico, reserved_pico, cap_day_pico, cap_week_pico, caps_us, spend
from accounts where account_id = :account_id;

-- name: accounts
select account_id, cap_pico, spent_pico, reserved_pico, cap_day_pico, cap_week_pico, caps_us, spend
from accounts order by account_id;

-- name: save_account
insert into accounts (account_id, cap_pico, spent_pico, reserved_pico, cap_day_pico, cap_week_pico, caps_us, spend)
values (:account_id, :cap_pico, :spent_pico, :reserved_pico, :cap_day_pico, :cap_week_pico, :caps_us, :spend)
on conflict (account_id) do update set cap_pico = excluded.cap_pico, spent_pico = excluded.spent_pico,
    reserved_pico = excluded.reserved_pico, cap_day_pico = excluded.cap_day_pico,
    cap_week_pico = excluded.cap_week_pico, caps_us = excluded.caps_us, spend = excluded.spend;

-- name: reservation
select amount_pico from reservations where session_id = :session_id and seq = :seq;

-- name: reservations
select session_id, seq, amount_pico from reservations;

-- name: insert_reservation
insert into reservations (session_id, seq, amount_pico) values (:session_id, :seq, :amount_pico);

-- name: delete_reservation
delete from reservations where session_id = :session_id and seq = :seq;

-- name: item
select item_id, session_id, seq, kind, title, opened_us, expires_us, status, closed_seq, seen_us
from items where item_id = :item_id;

-- name: items
select item_id, session_id, seq, kind, title, opened_us, expires_us, status, closed_seq, seen_us
from items order by opened_us, item_id limit :count;

-- name: items_open
select item_id, session_id, seq, kind, title, opened_us, expires_us, status, closed_seq, seen_us
from items where status = 'open' order by opened_us, item_id limit :count;

-- name: items_like
-- Items whose id begins or ends with the text; three are enough to say "not unique".
select item_id, session_id, seq, kind, title, opened_us, expires_us, status, closed_seq, seen_us
from items where substr(item_id, 1, length(:prefix)) = :prefix
    or (:tail <> '' and substr(item_id, length(item_id) - length(:tail) + 1) = :tail)
order by item_id limit 3;

-- name: save_item
-- An item of another session stays as it is, and no row changes.
insert into items (item_id, session_id, seq, kind, title, opened_us, expires_us, status, closed_seq, seen_us)
values (:item_id, :session_id, :seq, :kind, :title, :opened_us, :expires_us, :status, :closed_seq, :seen_us)
on conflict (item_id) do update set expires_us = excluded.expires_us, status = excluded.status,
    closed_seq = excluded.closed_seq, seen_us = excluded.seen_us
where items.session_id = excluded.session_id;

-- name: remove_events
delete from events where session_id = :session_id;

-- name: remove_posts
delete from posts where session_id = :session_id;

-- name: remove_items
delete from items where session_id = :session_id;

-- name: remove_reservations
delete from reservations where session_id = :session_id;

-- name: remove_snapshots
delete from snapshots where session_id = :session_id;

-- name: remove_session
delete from sessions where session_id = :session_id;

-- name: remove_account
delete from accounts where account_id = :account_id;

-- name: sweep_blobs
-- Bodies of events that were removed.
delete from blobs where digest not in (select digest from events where digest is not null);

-- name: save_snapshot
insert into snapshots (session_id, seq, hash, fold_digest, digest, state)
values (:session_id, :seq, :hash, :fold_digest, :digest, :state)
on conflict (session_id) do update set seq = excluded.seq, hash = excluded.hash,
    fold_digest = excluded.fold_digest, digest = excluded.digest, state = excluded.state;

-- name: snapshot
-- The kept state, if its hash is still that of the stored event.
select s.seq, s.hash, s.fold_digest, s.digest, s.state from snapshots s
join events e on e.session_id = s.session_id and e.seq = s.seq and e.hash = s.hash
where s.session_id = :session_id and s.fold_digest = :fold_digest;
