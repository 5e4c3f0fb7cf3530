package postgres_test

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/weir-cdc/weir"
)

// role makes a role that may log in, for this test.
func (w *world) role(name, options string) string {
	w.Helper()
	role := fmt.Sprintf("%s_%s", name, strings.ReplaceAll(weir.NewGUID().String(), "-", ""))
	w.exec("create role " + role + " login " + options)
	w.Cleanup(func() {
		if err := try(w.user, "reset role; drop owned by "+role+" cascade; drop role "+role); err != nil {
			w.Error(err)
		}
	})
	return role
}

// as is the URL of the database for another role.
func (w *world) as(role string) string {
	u, err := url.Parse(w.url)
	if err != nil {
		w.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}
