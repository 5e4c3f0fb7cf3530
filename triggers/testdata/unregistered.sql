-- warning: b is odd
-- s.a

-- create registration of s.a
create registration "id_s.a";
enable "id_s.a";

-- s.b

-- create registration of s.b
create registration "id_s.b";
enable "id_s.b";
