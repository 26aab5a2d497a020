-- Tables of version 2 become those of version 3. What the new columns hold is then read from the events.

alter table sessions add column marks text not null default '';
