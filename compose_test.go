package weir_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-cdc/weir/internal/config"
	"github.com/weir-cdc/weir/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

// TestCompose_File holds compose.yaml against the files that it names and
// against itself. What only Docker can tell, it cannot.
func TestCompose_File(t *testing.T) {
	data, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Ports     []string
			Volumes   []string
			DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
			Health    map[string]any                        `yaml:"healthcheck"`
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "sqlserver", "weir"} {
		if file.Services[name].Health == nil {
			t.Errorf("service %s is missing or has no healthcheck", name)
		}
	}
	script, err := os.ReadFile("test.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, port := range map[string]string{"postgres": "5432", "sqlserver": "1433"} {
		if ports := file.Services[name].Ports; len(ports) != 1 || !strings.HasSuffix(ports[0], ":"+port) {
			t.Errorf("service %s has ports %q; test.sh asks for that of %s", name, ports, port)
		}
	}
	for _, password := range []string{"${POSTGRES_PASSWORD:-weir}", "${MSSQL_SA_PASSWORD:-Weir-2022}"} {
		if !strings.Contains(string(data), password) || !strings.Contains(string(script), password) {
			t.Errorf("compose.yaml and test.sh are not of one mind about %s", password)
		}
	}
	for name, service := range file.Services {
		for _, volume := range service.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, named := file.Volumes[from]; named {
				continue
			}
			if _, err := os.Stat(from); err != nil {
				t.Errorf("service %s mounts %s: %v", name, from, err)
			}
		}
		for other, on := range service.DependsOn {
			if _, ok := file.Services[other]; !ok {
				t.Errorf("service %s depends on %s, which is none", name, other)
			}
			if on.Condition == "service_healthy" && file.Services[other].Health == nil {
				t.Errorf("service %s waits for the health of %s, which has no healthcheck", name, other)
			}
		}
	}
}

// TestCompose_Sample checks that the sample's SQL runs and that the sample's
// configuration is right and names its tables.
func TestCompose_Sample(t *testing.T) {
	c, err := config.Load(filepath.Join("docs", "compose", "weir.yaml"), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	// A server of its own, since the SQL makes a database by a fixed name.
	source := testdb.NewCluster(t).Database()
	files, err := filepath.Glob(filepath.Join("docs", "compose", "postgres", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no SQL in the sample: %v", err)
	}
	for _, file := range files {
		out, err := exec.Command(testdb.Bin(t, "psql"), "--no-psqlrc", "--quiet",
			"--set=ON_ERROR_STOP=1", "--dbname", source, "--file", file).CombinedOutput()
		if err != nil {
			t.Fatalf("psql: %v\n%s", err, out)
		}
	}
	if len(c.Captures) == 0 {
		t.Error("the sample captures nothing")
	}
	for _, capture := range c.Captures {
		testdb.Exec(t, source, "do $$ begin if not exists (select from "+capture.Table+") then raise 'no rows'; end if; end $$")
	}
}

// TestCompose_SQLServerSample is the same for SQL Server, but for the database by
// a fixed name, which would be in the way on a server that others use too.
func TestCompose_SQLServerSample(t *testing.T) {
	env := func(name string) (string, bool) { return "secret", name == "MSSQL_SA_PASSWORD" }
	c, err := config.Load(filepath.Join("docs", "compose", "weir-sqlserver.yaml"), env)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join("docs", "compose", "sqlserver", "shop.sql"))
	if err != nil {
		t.Fatal(err)
	}
	_, tables, ok := strings.Cut(string(data), "\nuse shop;\ngo\n")
	if !ok || len(c.Captures) == 0 {
		t.Fatal("the sample does not use the database shop, or captures nothing")
	}
	source := testdb.SQLServer(t)
	for range 2 { // every start runs it
		for _, batch := range strings.Split(tables, "\ngo\n") {
			testdb.Exec(t, source, batch)
		}
	}
	rows := map[string]int{"dbo.customers": 100, "dbo.orders": 1000}
	for _, capture := range c.Captures {
		testdb.Exec(t, source, fmt.Sprintf("if (select count(*) from %s) <> %d throw 50001, N'wrong count', 1",
			capture.Table, rows[capture.Table]))
	}
}
