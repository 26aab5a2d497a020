-- Every statement of the search index, by name.

-- name: state
select position, session_id, seq, hash, scrub from state;

-- name: set_position
update state set position = :position, session_id = :session_id, seq = :seq, hash = :hash;

-- name: set_scrub
update state set scrub = :scrub;

-- name: sessions
select session_id, seq, hash from sessions;

-- name: session
select number, seq, hash from sessions where session_id = :session_id;

-- name: insert_session
insert into sessions (session_id, seq, hash) values (:session_id, 0, x'');

-- name: move_session
update sessions set seq = ?, hash = ? where number = ?;

-- name: insert_document
insert into documents (session, seq, kind, at_us, text, files) values (?, ?, ?, ?, ?, ?);

-- name: insert_words
insert into words (rowid, text, files) values (?, ?, ?);

-- name: remove_words
insert into words (words, rowid, text, files)
select 'delete', id, text, files from documents where session = :session;

-- name: remove_documents
delete from documents where session = :session;

-- name: remove_session
delete from sessions where number = :session;

-- name: optimize
-- Merges the index into one segment: only this drops the entries of removed documents.
insert into words (words) values ('optimize');

-- name: latest
-- The latest matching events, all of the same rank.
select d.id, s.session_id, d.seq, d.kind, d.at_us, -1.0
from words join documents d on d.id = words.rowid join sessions s on s.number = d.session
where words match :expression order by words.rowid desc limit :count;

-- name: matches
-- The latest matching events, with their rank: lower is better, and a file name counts twice. For the rank, the database
-- looks at every event with one of the words.
select d.id, s.session_id, d.seq, d.kind, d.at_us, bm25(words, 1.0, 2.0)
from words join documents d on d.id = words.rowid join sessions s on s.number = d.session
where words match :expression order by words.rowid desc limit :count;

-- name: excerpts
-- Of several events at once: a prefix is looked up once for all of them.
select rowid, snippet(words, -1, :start, :end, '…', :tokens) from words
where words match :expression and rowid between :first and :last and rowid in (select value from json_each(:ids));
