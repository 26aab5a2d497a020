-- The tables of the log, schema 5. SQLite and PostgreSQL read this file alike: `bigint` and `bytea`
-- are integer and blob columns to both.

-- One row per fact about the file itself; `schema` is the version of these tables.
create table meta (
    name text not null primary key,
    value text not null
);

-- The truth (S1). `body` holds the bytes as stored; it is null when they lie in `blobs` under `digest`.
create table events (
    session_id text not null,
    seq bigint not null,
    epoch bigint not null,
    at_us bigint not null,
    type text not null,
    hash bytea not null,
    body bytea,
    digest bytea,
    primary key (session_id, seq)
);

-- Bodies over 64 KB by SHA-256. A row without bytes is a tombstone: the body was erased.
create table blobs (
    digest bytea not null primary key,
    bytes bytea
);

-- Keys of posts that were taken (S3). The key is in the event's body too, so this can be rebuilt.
create table posts (
    session_id text not null,
    key text not null,
    seq bigint not null,
    primary key (session_id, key)
);

-- One row per session (S20). `vocabulary` is the highest schema version among its bodies (S19). `parent` is
-- empty at the top of a tree, whose id is `root`. A fork begins after the event `origin_seq` of its `origin`.
-- `marks` are words about what a person should know: `weak`, `tainted`. `due_boot_us` is `due_us` as an uptime of the
-- boot `boot_id`: the wall clock may be set back.
create table sessions (
    session_id text not null primary key,
    key text not null,
    goal text not null,
    model text not null,
    workspace text not null,
    accounts text not null,
    created_us bigint not null,
    updated_us bigint not null,
    head bigint not null,
    head_hash bytea not null,
    epoch bigint not null,
    status text not null,
    reason text not null,
    detail text not null,
    holder text not null,
    due_us bigint,
    turns bigint not null,
    cost_pico bigint not null,
    input_tokens bigint not null,
    output_tokens bigint not null,
    parent text not null,
    root text not null,
    depth bigint not null,
    owner text not null,
    name text not null,
    origin text not null,
    origin_seq bigint not null,
    marks text not null,
    boot_id text not null,
    due_boot_us bigint,
    vocabulary bigint not null
);

create unique index sessions_by_key on sessions (key) where key <> '';
create index sessions_by_due on sessions (due_us) where due_us is not null;
create index sessions_runnable on sessions (due_us) where status = 'runnable';
create index sessions_by_boot on sessions (boot_id, due_boot_us) where due_boot_us is not null;
create index sessions_parked on sessions (updated_us) where status = 'parked' and due_us is not null;
create index sessions_runnable_newest on sessions (created_us, session_id) where status = 'runnable';
create index sessions_parked_newest on sessions (created_us, session_id) where status = 'parked';
create index sessions_done_newest on sessions (created_us, session_id) where status = 'done';
create index sessions_failed_newest on sessions (created_us, session_id) where status = 'failed';
create index sessions_cancelled_newest on sessions (created_us, session_id) where status = 'cancelled';
create index sessions_by_reason on sessions (reason, created_us, session_id) where reason <> '';
create index sessions_newest on sessions (created_us, session_id);
create index sessions_by_root on sessions (root, created_us);
create index sessions_by_parent on sessions (parent, created_us) where parent <> '';
create index sessions_by_holder on sessions (holder) where holder <> '';

-- Questions to people (S20, S21): what the inbox lists.
create table items (
    item_id text not null primary key,
    session_id text not null,
    seq bigint not null,
    kind text not null,
    title text not null,
    opened_us bigint not null,
    expires_us bigint,
    status text not null,
    closed_seq bigint,
    seen_us bigint
);

create index items_open on items (opened_us) where status = 'open';

-- Money (S15). Spent and reserved together never exceed a cap by a reservation. `spend` says how much was
-- spent in which five minutes and hours lately, in MessagePack.
create table accounts (
    account_id text not null primary key,
    cap_pico bigint,
    spent_pico bigint not null,
    reserved_pico bigint not null,
    cap_day_pico bigint,
    cap_week_pico bigint,
    caps_us bigint not null,
    spend bytea not null
);

-- What open model requests and priced calls hold; `seq` is the event that holds it.
create table reservations (
    session_id text not null,
    seq bigint not null,
    amount_pico bigint not null,
    primary key (session_id, seq)
);

-- One folded state per session, a cache (S19). `digest` is SHA-256 of `state`.
create table snapshots (
    session_id text not null primary key,
    seq bigint not null,
    hash bytea not null,
    fold_digest text not null,
    digest bytea not null,
    state bytea not null
);
