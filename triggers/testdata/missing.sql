-- s.a

-- create trigger t on s.a_p
create trigger "t";
enable "t";
