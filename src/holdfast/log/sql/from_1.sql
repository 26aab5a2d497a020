-- Tables of version 1 become those of version 2. What the new columns hold is then read from the events.

alter table sessions add column parent text not null default '';
alter table sessions add column root text not null default '';
alter table sessions add column depth bigint not null default 0;
alter table sessions add column owner text not null default '';
alter table sessions add column name text not null default '';
alter table sessions add column origin text not null default '';
alter table sessions add column origin_seq bigint not null default 0;
update sessions set root = session_id;

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

-- 929090 is an empty `Spend` in MessagePack.
alter table accounts add column cap_day_pico bigint;
alter table accounts add column cap_week_pico bigint;
alter table accounts add column caps_us bigint not null default 0;
alter table accounts add column spend bytea not null default x'929090';

alter table reservations rename column request_seq to seq;
