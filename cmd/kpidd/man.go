package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The pages are written here and not by cobra's own package for them: the
// initialisation of its Markdown parser would cost every command half a
// millisecond.

func newMan() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "man [COMMAND]", Short: "Print a manual page, or write all of them to a directory",
		Long: "Print the manual page of kpidd or of one of its commands (kpidd man ps | man -l -),\nor write all pages to a directory with --dir.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if dir != "" {
				if err := writePages(root, dir); err != nil {
					return cannot(err)
				}
				return nil
			}
			page, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage("no command %q", args)
			}
			if err := writePage(cmd.OutOrStdout(), page); err != nil {
				return cannot(err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "write the pages of all commands here")
	return c
}

// documented are the commands that have a page: root and what its help lists.
func documented(root *cobra.Command) []*cobra.Command {
	cmds := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			cmds = append(cmds, c)
		}
	}
	return cmds
}

// pageName is the name of a command's page: kpidd, kpidd-ps.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func writePages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range documented(root) {
		var page strings.Builder
		if err := writePage(&page, c); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, pageName(c)+".8"), []byte(page.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writePage writes the page of one command in the language of man(7).
func writePage(w io.Writer, c *cobra.Command) error {
	out := bufio.NewWriter(w)
	name := pageName(c)
	fmt.Fprintf(out, ".TH \"%s\" \"8\" \"\" \"kpidd\" \"kpidd\"\n", strings.ToUpper(name))
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(out, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	fmt.Fprintf(out, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", roff(description(c)))
	c.InitDefaultHelpFlag()
	writeFlags(out, "OPTIONS", c.NonInheritedFlags())
	writeFlags(out, "COMMON OPTIONS", c.InheritedFlags())
	var also []string
	for _, other := range documented(c.Root()) {
		if other != c {
			also = append(also, fmt.Sprintf("\\fB%s\\fP(8)", roff(pageName(other))))
		}
	}
	fmt.Fprintf(out, ".SH SEE ALSO\n%s\n", strings.Join(also, ", "))
	return out.Flush()
}

func description(c *cobra.Command) string {
	if c.Long != "" {
		return strings.TrimSpace(c.Long)
	}
	return c.Short + "."
}

func writeFlags(out *bufio.Writer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(out, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		value, text := pflag.UnquoteUsage(f)
		fmt.Fprintf(out, ".TP\n\\fB%s\\fP", roff(names))
		if value != "" {
			fmt.Fprintf(out, " \\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(out, "\n%s\n", roff(text))
	})
}

// roff escapes text: no backslash, dash, leading dot or quote has a meaning in it.
func roff(s string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
