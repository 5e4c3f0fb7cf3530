-- GI_ExpiredPulls(@Name): the pulls of that name that somebody must finish: PullGUID, Puller, Ledger, State, Rows. Leases that ran
-- out (state claimed: the target's ledger knows whether it committed: complete, or revoke and release), and settled or
-- released pulls with rows left (call again).
CREATE OR ALTER PROCEDURE {{.Schema}}.[GI_ExpiredPulls]
    @Name nvarchar(200)
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SELECT p.PullGUID, p.Puller, p.Ledger, p.State, p.[Rows]
    FROM {{.Schema}}.[GI_Pulls] p
    WHERE p.Name = @Name AND (p.State <> 'claimed' OR p.LeaseUntil < SYSUTCDATETIME())
    ORDER BY p.LeaseUntil, p.PullGUID;
END
