package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/kpidd/kpidd/internal/privileged"
)

// An audit compares two views of one world, or says that it cannot; a daemon
// whose clocks are shifted does not begin.
func TestPrivilegedOtherNamespaces(t *testing.T) {
	privileged.Hold(t)
	pids := []string{"unshare", "-p", "-f", "--mount-proc"}
	times := []string{"unshare", "-T", "--boottime", "1000", "--fork"}
	for _, wrap := range [][]string{pids, times} {
		if exec.Command(wrap[0], append(wrap[1:], "true")...).Run() != nil {
			privileged.Missing(t, strings.Join(wrap[:2], ""))
		}
	}
	line := refused(t, daemonSpec{wrap: times})
	if !strings.Contains(line, "time namespace") {
		t.Errorf("run in a time namespace: got %q", line)
	}
	d := startDaemon(t, daemonSpec{args: perfSource})
	for _, c := range []struct {
		wrap []string
		want string
	}{{pids, "in its PID namespace"}, {times, "time namespace"}} {
		audit := command("--runtime-dir", d.dir, "audit")
		audit.Args = append(append([]string{}, c.wrap...), audit.Args...)
		audit.Args[len(c.wrap)] = audit.Path
		audit.Path, _ = exec.LookPath("unshare")
		out, err := audit.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitCannot || !strings.Contains(string(out), c.want) {
			t.Errorf("%v audit: got %v, %q; want exit code 3 and %q", c.wrap, err, out, c.want)
		}
	}
	d.auditClean()
	d.stop()
}
