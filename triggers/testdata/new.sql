-- warning: b is odd
-- queues

-- create queue "events"
create queue "events";
enable "events";

-- s.a

-- create registration of s.a
create registration "id_s.a";
enable "id_s.a";

-- create function tag_s.a
create function "tag_s.a";
enable "tag_s.a";

-- create trigger t on s.a
create trigger "t";
enable "t";

-- create trigger t on s.a_p
create trigger "t";
enable "t";

-- s.b

-- create registration of s.b
create registration "id_s.b";
enable "id_s.b";

-- create function tag_s.b
create function "tag_s.b";
enable "tag_s.b";

-- create trigger t on s.b
create trigger "t";
enable "t";

-- create trigger t on s.b_p
create trigger "t";
enable "t";
