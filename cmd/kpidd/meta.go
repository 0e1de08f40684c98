package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/kpidd/kpidd/core/table"
	"github.com/spf13/cobra"
)

// version is set at release with -ldflags=-X; else the build's own is shown.
var version = ""

func versionString() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format := "kpidd %s, table layout %s, %s %s\n"
			if asJSON {
				format = "{\"version\":%q,\"abi\":%q,\"go\":%q,\"arch\":%q}\n"
			}
			abi := fmt.Sprintf("%d.%d", table.ABIMajor, table.ABIMinor)
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), format, versionString(), abi, runtime.Version(), runtime.GOARCH); err != nil {
				return cannot(err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "Print a completion script for a shell",
		Long:      "Print a completion script. For bash: source <(kpidd completion bash).",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			var err error
			switch args[0] {
			case "bash":
				err = root.GenBashCompletionV2(out, true)
			case "zsh":
				err = root.GenZshCompletion(out)
			case "fish":
				err = root.GenFishCompletion(out, true)
			default:
				err = root.GenPowerShellCompletionWithDesc(out)
			}
			if err != nil {
				return cannot(err)
			}
			return nil
		},
	}
}
