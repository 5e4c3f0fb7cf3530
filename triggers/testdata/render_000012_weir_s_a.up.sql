-- weir: s.a. Apply this in one transaction, with a lock time-out where the engine
-- has one: a trigger needs a short lock on its table.

-- replace registration of s.a
create registration "id_s.a";
enable "id_s.a";

-- create trigger t on s.a_p
create trigger "t";
enable "t";
