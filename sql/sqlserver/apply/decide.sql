-- Enters a pull (@p1) into the ledger with a state (@p2), or changes nothing where the ledger has decided. The range lock of
-- HOLDLOCK makes whoever decides the same pull wait for this transaction's end.
INSERT INTO {{.Schema}}.[weir_ledger] (pull_guid, state)
SELECT CONVERT(uniqueidentifier, @p1), @p2
WHERE NOT EXISTS (
    SELECT 1 FROM {{.Schema}}.[weir_ledger] WITH (UPDLOCK, HOLDLOCK, ROWLOCK)
    WHERE pull_guid = CONVERT(uniqueidentifier, @p1)
)
