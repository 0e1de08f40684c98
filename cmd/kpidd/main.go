package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes, the same for every command.
const (
	exitDone   = 0 // done, or found
	exitNone   = 1 // nothing matched, or differences found
	exitUsage  = 2
	exitCannot = 3 // no daemon, no permission, a kernel feature is missing
)

// exitError ends the program with a code. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func cannot(err error) error { return &exitError{exitCannot, err} }

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs one command line and returns its exit code. An error is one line
// on stderr.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	code := exitUsage // what cobra itself refuses
	if e, ok := errors.AsType[*exitError](err); ok {
		if code = e.code; e.err == nil {
			return code
		}
	}
	fmt.Fprintf(stderr, "kpidd: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
	return code
}

// options are the flags that all commands share.
type options struct {
	runtimeDir string
	quiet      bool
	stderr     io.Writer
}

// note writes one line of explanation, unless --quiet.
func (o *options) note(format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(o.stderr, "kpidd: "+format+"\n", args...)
	}
}

func newRoot() *cobra.Command {
	opts := &options{stderr: os.Stderr}
	root := &cobra.Command{
		Use:           "kpidd",
		Short:         "The process table of Linux, live, exact and at memory speed",
		Long:          "kpidd keeps a live table of every process and thread in shared memory\n(kpidd run) and reads it without scanning /proc (kpidd ps).\n\nEach flag can be given in the environment as KPIDD_NAME, as in KPIDD_RUNTIME_DIR.\nExit codes: 0 done or found, 1 nothing matched or differences found, 2 usage,\n3 cannot (no daemon, no permission, missing kernel feature).",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			opts.stderr = cmd.ErrOrStderr()
			return flagsFromEnvironment(cmd)
		},
	}
	root.PersistentFlags().StringVar(&opts.runtimeDir, "runtime-dir", "", "keep table and socket in `DIR` (default /run/kpidd as root, else one of the user's own)")
	root.PersistentFlags().BoolVar(&opts.quiet, "quiet", false, "no notes on standard error")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.AddCommand(newRun(opts), newPs(opts), newStatus(opts), newAudit(opts),
		newVersion(), newCompletion(), newMan())
	return root
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("no command %q; kpidd --help lists them", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// flagsFromEnvironment gives each flag that is not on the command line the value
// of KPIDD_NAME, if that is set.
func flagsFromEnvironment(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "KPIDD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && !f.Changed && err == nil && len(f.Name) > 1 {
			if e := cmd.Flags().Set(f.Name, v); e != nil {
				err = usage("%s: %v", name, e)
			}
		}
	})
	return err
}
