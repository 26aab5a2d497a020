-- Tables of version 3 become those of version 4. What the new columns hold is then read from the events.

alter table sessions add column boot_id text not null default '';
alter table sessions add column due_boot_us bigint;
create index sessions_runnable on sessions (due_us) where status = 'runnable';
create index sessions_by_boot on sessions (boot_id, due_boot_us) where due_boot_us is not null;
create index sessions_parked on sessions (updated_us) where status = 'parked' and due_us is not null;
