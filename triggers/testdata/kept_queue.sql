-- warning: queue "events" is kept: it still holds changes
-- warning: s.a will not be captured any more, and changes of it that wait in a queue cannot be shipped then: pull them first
-- warning: s.b will not be captured any more, and changes of it that wait in a queue cannot be shipped then: pull them first
-- s.a

-- drop trigger t on s.a
drop trigger "t";

-- drop trigger t on s.a_p
drop trigger "t";

-- drop function tag_s.a
drop function "tag_s.a";

-- drop registration of s.a
drop registration "id_s.a";

-- s.b

-- drop trigger t on s.b
drop trigger "t";

-- drop trigger t on s.b_p
drop trigger "t";

-- drop function tag_s.b
drop function "tag_s.b";

-- drop registration of s.b
drop registration "id_s.b";
