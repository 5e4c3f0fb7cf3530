-- warning: function tag_s.a was not as this version of weir makes it, trigger t on s.a_p was changed: what was written to s.a meanwhile was not captured; run weir backfill --restart s.a after apply. Rows that were deleted meanwhile stay at the target until they are deleted there
-- s.a

-- replace function tag_s.a
create function "tag_s.a";
enable "tag_s.a";

-- replace trigger t on s.a_p
create trigger "t";
enable "t";
