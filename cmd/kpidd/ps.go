package main

import (
	"bufio"
	"slices"
	"strconv"
	"strings"

	"github.com/kpidd/kpidd/core/field"
	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/spf13/cobra"
)

// The columns without -o.
const (
	defaultColumns       = "pid,ppid,s,nlwp,start_time,comm"
	defaultThreadColumns = "pid,lwp,ppid,s,start_time,comm"
)

func newPs(opts *options) *cobra.Command {
	var (
		all, threads, asJSON bool
		pids, columns        []string
	)
	c := &cobra.Command{
		Use: "ps", Short: "List processes from the table, without scanning /proc",
		Long: "List processes from the daemon's table; without a daemon, from /proc.\n\nFields of -o:\n" + fieldHelp(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := parsePIDs(pids)
			if err != nil {
				return err
			}
			cols, err := parseColumns(columns, threads)
			if err != nil {
				return err
			}
			l, err := listTasks(opts, threads)
			if err != nil {
				return cannot(err)
			}
			if !all && len(want) > 0 {
				l.tasks = slices.DeleteFunc(l.tasks, func(h table.Hot) bool { return !slices.Contains(want, h.TGID) })
			}
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
			f := newFormatter(l)
			if asJSON {
				f.writeJSON(out, len(columns) > 0, cols)
			} else {
				f.writeText(out, cols)
			}
			if err := out.Flush(); err != nil {
				return cannot(err)
			}
			if len(l.tasks) == 0 {
				return &exitError{code: exitNone}
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&all, "everyone", "e", false, "every process (also without any selection)")
	fl.BoolVarP(&threads, "threads", "L", false, "threads too")
	fl.StringArrayVarP(&pids, "pid", "p", nil, "processes with these numbers: a list with commas or blanks")
	fl.StringArrayVarP(&columns, "format", "o", nil, "columns: a list with commas or blanks; NAME=HEADER renames")
	fl.BoolVar(&asJSON, "json", false, "one JSON object a line")
	return c
}

// splitList splits as ps(1) does, at commas and blanks. Empty items are errors.
func splitList(what string, args []string) ([]string, error) {
	var items []string
	for _, arg := range args {
		fields := strings.FieldsFunc(arg, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
		if len(fields) == 0 || strings.HasPrefix(arg, ",") || strings.HasSuffix(arg, ",") || strings.Contains(arg, ",,") {
			return nil, usage("%s: bad list %q: want items with commas or blanks between them", what, arg)
		}
		items = append(items, fields...)
	}
	return items, nil
}

func parsePIDs(args []string) ([]uint32, error) {
	items, err := splitList("-p", args)
	if err != nil {
		return nil, err
	}
	var pids []uint32
	for _, item := range items {
		n, err := strconv.ParseUint(item, 10, 32)
		if err != nil || n == 0 || n >= pid.Max {
			return nil, usage("-p: %q is no process number (1 to %d)", item, pid.Max-1)
		}
		pids = append(pids, uint32(n))
	}
	return pids, nil
}

// column is a field under the header that it was asked for with.
type column struct {
	field.ID
	header string
}

// parseColumns reads the lists of -o. NAME=HEADER takes the rest of its argument
// as the header, as ps(1) does.
func parseColumns(args []string, threads bool) ([]column, error) {
	if len(args) == 0 {
		args = []string{defaultColumns}
		if threads {
			args = []string{defaultThreadColumns}
		}
	}
	var cols []column
	for _, arg := range args {
		list, header, renamed := strings.Cut(arg, "=")
		items, err := splitList("-o", []string{list})
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			id, h, ok := field.Lookup(item)
			if !ok {
				return nil, usage("-o: unknown field %q; kpidd ps --help lists them", item)
			}
			cols = append(cols, column{id, h})
		}
		if renamed {
			cols[len(cols)-1].header = header
		}
	}
	return cols, nil
}

func fieldHelp() string {
	var b strings.Builder
	for i := range field.Catalogue {
		f := &field.Catalogue[i]
		names := []string{f.Name}
		for _, a := range f.Aliases {
			names = append(names, a.Name)
		}
		b.WriteString("  " + strings.Join(names, ", ") + strings.Repeat(" ", max(1, 26-len(strings.Join(names, ", ")))) + f.Doc + "\n")
	}
	return b.String()
}
