-- weir: s.a. This drops what the up file created.

-- drop trigger t on s.a_p
drop trigger "t";

-- not undone: replace registration of s.a
