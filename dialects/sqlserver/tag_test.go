package sqlserver_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
)

// TestChangeTypes: ChangeType is varchar, and a type of which it would lose a
// letter is refused where it is configured and where it is tagged.
func TestChangeTypes(t *testing.T) {
	s := newSite(t, "CREATE TABLE dbo.Parts (PartID int NOT NULL PRIMARY KEY, DocumentGUID uniqueidentifier NOT NULL)")
	if _, err := s.src.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	spec := weir.CaptureSpec{Table: weir.Table{Schema: "dbo", Name: "Parts"}, InstanceGUID: "DocumentGUID"}
	for changeType, held := range map[string]bool{"Pièce changée": true, "部品": false, "changed → new": false, "Part 🔧": false} {
		spec.ChangeType = changeType
		_, err := s.src.Resolve(context.Background(), []weir.CaptureSpec{spec})
		var c *weir.ConfigError
		switch {
		case held && err != nil:
			t.Errorf("change_type %q: %v", changeType, err)
		case !held && (!errors.As(err, &c) || !strings.Contains(err.Error(), changeType) || !strings.Contains(err.Error(), "varchar(40)") || c.Hint == ""):
			t.Errorf("change_type %q: %v, want it refused with the type, what cannot hold it, and a hint", changeType, err)
		}
	}

	t.Run("by hand", func(t *testing.T) {
		testdb.OnlySQLServer(t, "varchar that keeps to its code page")
		for call, want := range map[string]string{
			"EXEC dbo.GI_InstanceChanged '0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', NULL, N'部品'":                                                           "the change type has characters",
			"EXEC dbo.GI_InstanceChanged '0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', NULL, N'Pièce changée', N'部品'":                                         "the old primary key has characters",
			"DECLARE @c dbo.GI_Tags; INSERT INTO @c VALUES ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', NULL, 'x', N'部品'); EXEC dbo.GI_InstancesChanged @c": "an old primary key has characters",
		} {
			if _, err := s.db.ExecContext(context.Background(), call); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in the error", call, err, want)
			}
		}
		if got := s.list("SELECT ChangeType FROM dbo.InstanceChanges"); len(got) != 0 {
			t.Errorf("the queue holds %q, want nothing", got)
		}
	})
}
