-- weir: s.a. This drops what the up file created.

-- drop trigger t on s.a_p
drop trigger "t";

-- drop trigger t on s.a
drop trigger "t";

-- drop function tag_s.a
drop function "tag_s.a";

-- drop registration of s.a
drop registration "id_s.a";
