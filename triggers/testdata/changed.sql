-- s.a

-- replace function tag_s.a
create function "tag_s.a";
enable "tag_s.a";

-- replace trigger t on s.a_p
create trigger "t";
enable "t";
