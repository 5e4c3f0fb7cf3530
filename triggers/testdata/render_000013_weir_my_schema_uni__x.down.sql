-- weir: My Schema.Ünï."x. This drops what the up file created.

-- not undone: drop registration of My Schema.Ünï."x
-- not undone: drop function tag_My Schema."Ünï.""x"
-- not undone: drop trigger t on My Schema.Ünï."x_p
-- not undone: drop trigger t on My Schema.Ünï."x
