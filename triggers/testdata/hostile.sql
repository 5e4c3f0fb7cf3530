-- queues

-- create queue "events"
create queue "events";
enable "events";

-- s.e\nvil; --

-- create registration of s.e\nvil; --
create registration "id_s.\"e\nvil; --";
enable "id_s.\"e\nvil; --";

-- create function tag_s."e\nvil; --
create function "tag_s.\"e\nvil; --";
enable "tag_s.\"e\nvil; --";

-- create trigger t on s.e\nvil; --
create trigger "t";
enable "t";

-- create trigger t on s.e\nvil; --_p
create trigger "t";
enable "t";
