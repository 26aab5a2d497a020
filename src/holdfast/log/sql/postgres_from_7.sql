-- Version 8, also the last step of new tables: homes that share a log compare their settings.

-- Digests of the settings of a home by name, in JSON with sorted names, as its latest worker had them.
create table places (
    place text primary key,
    settings text not null
);

-- True if the home has these settings too, or has not told its own.
create function same_settings(home varchar, mine varchar) returns boolean language sql volatile
as 'select not exists (select 1 from places where place = home and settings <> mine)';
