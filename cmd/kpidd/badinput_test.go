package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/internal/privileged"
	"golang.org/x/sys/unix"
)

// nobody is a user without any right.
const nobody = 65534

// refused starts a daemon that must end with code 3 and one line, which it
// returns.
func refused(t *testing.T, spec daemonSpec) string {
	t.Helper()
	d := launch(t, spec)
	select {
	case <-d.exited:
	case <-time.After(readyMax):
		t.Fatalf("the daemon still runs after %v", readyMax)
	}
	lines, _ := d.stderr()
	if code := d.cmd.ProcessState.ExitCode(); code != exitCannot || len(lines) != 1 || !strings.HasPrefix(lines[0], "kpidd: ") {
		t.Fatalf("got %v and %q, want exit code 3 and one line", d.cmd.ProcessState, lines)
	}
	return lines[0]
}

// onDisk tells whether a path is on no memory file system.
func onDisk(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type != unix.TMPFS_MAGIC && st.Type != unix.RAMFS_MAGIC
}

// TestPrivilegedNoTmpfs: a table on a disk is refused.
func TestPrivilegedNoTmpfs(t *testing.T) {
	privileged.Hold(t)
	disk, err := os.MkdirTemp("", "kpidd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(disk)
	if !onDisk(disk) {
		privileged.Missing(t, "temporary-directory-on-disk")
	}
	line := refused(t, daemonSpec{
		dir:        filepath.Join(disk, "run"),
		cloneflags: unix.CLONE_NEWNS,
		wrap:       []string{"sh", "-c", `mount --make-rprivate / && mount --bind "$1" /dev/shm && shift && exec "$@"`, "sh", disk},
	})
	if !strings.Contains(line, "no tmpfs for the table") {
		t.Errorf("got %q", line)
	}
	onlyLock(t, filepath.Join(disk, "run"))
}

// mountTmpfs makes a runtime directory that is a memory file system of its own.
func mountTmpfs(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = shortDir(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("kpidd-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// onlyLock fails the test if anything but the lock is in a runtime directory.
func onlyLock(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// TestPrivilegedTmpfsTooSmall: no room for the first table.
func TestPrivilegedTmpfsTooSmall(t *testing.T) {
	privileged.Hold(t)
	for _, size := range []string{"4k", "64k"} {
		t.Run(size, func(t *testing.T) {
			dir := mountTmpfs(t, size)
			if line := refused(t, daemonSpec{dir: dir}); !strings.Contains(line, "no space left") {
				t.Errorf("got %q, want no space left", line)
			}
			onlyLock(t, dir)
		})
	}
}

// TestPrivilegedTmpfsFills: when the table cannot grow, what is there is served,
// and when there is room again what was left out is taken in.
func TestPrivilegedTmpfsFills(t *testing.T) {
	privileged.Hold(t)
	const threads = 6000
	dir := mountTmpfs(t, "512k")
	d := startDaemon(t, daemonSpec{dir: dir, args: perfSource})
	if s := d.status(); s.TableFull {
		t.Fatalf("the table is full before the test: %+v", s)
	}
	many := sleeping(t, "threads", strconv.Itoa(threads))
	eventually(t, soon, func() string {
		if !d.status().TableFull {
			return "the table is not full"
		}
		return ""
	})
	if row, ok := d.process(1); !ok || row.PID != 1 {
		t.Errorf("got %+v (%v), want process 1", row, ok)
	}
	if a, _ := d.audit(); a.Missing == 0 {
		t.Errorf("audit: got %+v, want tasks that had no room", a)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*soon, func() string {
		s := d.status()
		if row, ok := d.process(many.pid()); !ok || *row.Threads != threads+1 || s.TableFull {
			return fmt.Sprintf("got %+v (%v), full = %v, want %d threads", row, ok, s.TableFull, threads+1)
		}
		return ""
	})
	d.auditIn(soon)
	d.stop()
}

// TestPrivilegedForeignTable: a table of another user is neither read nor
// touched, however right it looks.
func TestPrivilegedForeignTable(t *testing.T) {
	privileged.Hold(t)
	d := startDaemon(t, daemonSpec{args: perfSource})
	head, err := os.ReadFile(d.tableFile())
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	for name, content := range map[string][]byte{
		"garbage":   []byte(strings.Repeat("no table ", 1000)),
		"forged":    head[:1<<16],
		"truncated": head[:100],
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, table.TableName)
			if err := os.WriteFile(file, content, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(file, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"ps"}, {"audit"}} {
				out, errs, code := kpidd(append(args, "--runtime-dir", dir)...)
				if code != exitCannot || out != "" || !errorLine.MatchString(errs) || !strings.Contains(errs, "owned by somebody else") {
					t.Errorf("%s: got %d, %q, %q, want 3 and one line", args, code, out, errs)
				}
			}
			refused(t, daemonSpec{dir: dir, args: perfSource})
			now, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(now, content) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

// TestPrivilegedTruncatedTable: a table that is cut off is never read past its end.
func TestPrivilegedTruncatedTable(t *testing.T) {
	privileged.Hold(t)
	d := startDaemon(t, daemonSpec{args: perfSource})
	head, err := os.ReadFile(d.tableFile())
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	for _, size := range []int{0, 100, table.HeaderBytes - 1, table.HeaderBytes, table.HeaderBytes + 1, 1 << 16} {
		dir := shortDir(t)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, table.TableName), head[:size], 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"ps"}, {"audit"}} {
			out, errs, code := kpidd(append(args, "--runtime-dir", dir)...)
			if code != exitCannot || out != "" || !errorLine.MatchString(errs) {
				t.Errorf("%s of %d bytes: got %d, %q, %q, want 3 and one line", args, size, code, out, errs)
			}
		}
	}
}

// asNobody runs a copy of this test binary without any right.
func asNobody(t *testing.T, binary, as string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{mainVar + "=" + as, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestPrivilegedNobody: root's daemon shows everybody what /proc does, and no more.
func TestPrivilegedNobody(t *testing.T) {
	privileged.Hold(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(shortDir(t)) // everybody may search it
	binary := filepath.Join(dir, "kpidd")
	copyFile(t, self, binary)
	d := startDaemon(t, daemonSpec{args: perfSource})

	out, errs, code := asNobody(t, binary, asMain, "ps", "--json", "-p", strconv.Itoa(os.Getpid()), "--runtime-dir", d.dir)
	if code != exitDone || errs != "" || !strings.Contains(out, fmt.Sprintf(`"pid":%d,`, os.Getpid())) {
		t.Errorf("ps: got %d, %q, %q", code, out, errs)
	}
	out, errs, code = asNobody(t, binary, asMain, "status", "--runtime-dir", d.dir)
	if code != exitDone || errs != "" || !strings.Contains(out, `"source":"perf"`) {
		t.Errorf("status: got %d, %q, %q", code, out, errs)
	}
	out, errs, code = asNobody(t, binary, asMain, "audit", "--runtime-dir", d.dir)
	if code != exitDone || !strings.Contains(out, "missing 0 ghosts 0 mismatched 0") {
		t.Errorf("audit: got %d, %q, %q", code, out, errs)
	}
	out, errs, code = asNobody(t, binary, asStream, d.dir)
	if code != exitCannot || !strings.Contains(out, "permission denied") || !strings.Contains(out, "need root or group kpidd") {
		t.Errorf("events: got %d, %q, %q, want a refusal", code, out, errs)
	}
	for _, args := range [][]string{
		{"run", "--runtime-dir", d.dir},
		{"run", "--runtime-dir", filepath.Join(dir, "new")},
		{"run", "--runtime-dir", fmt.Sprintf("/dev/shm/kpidd-test-%d", os.Getpid()), "--source", "perf"},
	} {
		out, errs, code = asNobody(t, binary, asMain, args...)
		if code != exitCannot || out != "" || !errorLine.MatchString(errs) {
			t.Errorf("%s: got %d, %q, %q, want 3 and one line", args, code, out, errs)
		}
		t.Logf("%s: %s", args, errs)
	}
	os.RemoveAll(fmt.Sprintf("/dev/shm/kpidd-test-%d", os.Getpid()))
	d.auditClean()
	d.stop()
}
