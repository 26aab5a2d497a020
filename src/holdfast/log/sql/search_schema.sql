-- The tables of the search index, a file of its own: all of it is derived from the log.

-- One row: the last event that was indexed, by its position in the log. `scrub` is 1 while words of removed sessions may
-- still be in free pages of the file or in its write-ahead log.
create table state (
    position integer not null,
    session_id text not null,
    seq integer not null,
    hash blob not null,
    scrub integer not null
);
insert into state values (0, '', 0, x'', 0);

-- The last indexed event of each session.
create table sessions (
    number integer primary key,
    session_id text not null unique,
    seq integer not null,
    hash blob not null
);

-- One row per indexed event.
create table documents (
    id integer primary key,
    session integer not null,
    seq integer not null,
    kind text not null,
    at_us integer not null,
    text text not null,
    files text not null
);

create index documents_by_session on documents (session);

create virtual table words using fts5 (
    text, files, content = 'documents', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
