-- weir: My Schema.Ünï."x. Apply this in one transaction, with a lock time-out where the engine
-- has one: a trigger needs a short lock on its table.

-- drop trigger t on My Schema.Ünï."x
drop trigger "t";

-- drop trigger t on My Schema.Ünï."x_p
drop trigger "t";

-- drop function tag_My Schema."Ünï.""x"
drop function "tag_My Schema.\"Ünï.\"\"x\"";

-- drop registration of My Schema.Ünï."x
drop registration "id_My Schema.\"Ünï.\"\"x\"";
