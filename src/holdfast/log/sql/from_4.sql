-- Tables of version 4 become those of version 5: pages of sessions, and trees, are found by an index.

create index sessions_runnable_newest on sessions (created_us, session_id) where status = 'runnable';
create index sessions_parked_newest on sessions (created_us, session_id) where status = 'parked';
create index sessions_done_newest on sessions (created_us, session_id) where status = 'done';
create index sessions_failed_newest on sessions (created_us, session_id) where status = 'failed';
create index sessions_cancelled_newest on sessions (created_us, session_id) where status = 'cancelled';
create index sessions_by_reason on sessions (reason, created_us, session_id) where reason <> '';
create index sessions_newest on sessions (created_us, session_id);
create index sessions_by_root on sessions (root, created_us);
create index sessions_by_parent on sessions (parent, created_us) where parent <> '';
