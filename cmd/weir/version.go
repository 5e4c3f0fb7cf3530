package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print weir's version",
		Example: `  weir version
  weir version --json`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			v := version()
			if asJSON {
				return printJSON(a.stdout, v)
			}
			_, err := fmt.Fprintf(a.stdout, "weir %s (%s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is what the Go tool wrote into the program.
func version() versionInfo {
	v := versionInfo{Version: "(devel)", Commit: "no commit", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
