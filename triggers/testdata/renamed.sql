-- warning: b is odd
-- warning: s.a will not be captured any more, and changes of it that wait in a queue cannot be shipped then: pull them first
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

-- s.a

-- drop trigger t on s.a
drop trigger "t";

-- drop trigger t on s.a_p
drop trigger "t";

-- drop function tag_s.a
drop function "tag_s.a";

-- drop registration of s.a
drop registration "id_s.a";
