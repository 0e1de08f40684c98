// puppet plays the processes and threads of a conformance script on the running
// kernel. Its first image is the reaper of a fresh PID namespace. Every task of
// the script serves one slot of a board, a file in memory that the test maps too:
// it waits for an order, carries it out by the system call of that name, and puts
// the result there. Only one order is under way at any time.
//
//   puppet BOARD SLOT    serve SLOT of the board open as descriptor BOARD; slot 0
//                        of a fresh board mounts /proc and an empty /tmp first
//
// A task that gets no order for IDLE_SECONDS ends.
//
// Build: cc -O2 -Wall -Wextra -static -o puppet puppet.c
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define IDLE_SECONDS 20
#define SLOTS 128
#define STACK_BYTES (16 << 10)
#define LEVELS 33
#define TARGETS 10 // where file systems are mounted

// Orders; the test has the same list.
enum { CLONE = 1, EXEC, EXIT, EXIT_GROUP, SETSID, SETPGID, UNSHARE, WAIT, KILL,
       SUBREAPER, SIGCHLD_TO, IDS, LIST, PID_MAX, LAST_PID, SETUID, MQUEUE, UMOUNT, SETNS };

// What SIGCHLD_TO sets.
enum { TO_DEFAULT, TO_IGNORE, TO_NOCLDWAIT };

// A slot of the board. order and reply are futexes: an order is under way while
// they differ. born counts the images that have begun to serve the slot.
struct slot {
  uint32_t order, reply, born, op;
  int64_t arg[4];
  int64_t result;          // what the call returned, or -errno
  int32_t tgid, tid;       // numbers in the script's namespace
  int32_t info[4];         // IDS: pid, ppid, pgid, sid; WAIT: pid, code, status
  int32_t set_tid[LEVELS]; // CLONE: requested numbers, innermost first
  int32_t set_tid_size;
  char text[1832];         // LIST: numbers, a space behind each
};
_Static_assert(sizeof(struct slot) == 2048, "the test has the same layout");

static struct slot *board;
static char board_fd[12];
static char stacks[SLOTS][STACK_BYTES] __attribute__((aligned(16)));

static void wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0); }

// The numbers of this task as the script's namespace sees them, through its /proc.
static void find_self(struct slot *s) {
  char link[64] = {0};
  if (readlinkat(AT_FDCWD, "/proc/thread-self", link, sizeof link - 1) < 0 ||
      sscanf(link, "%d/task/%d", &s->tgid, &s->tid) != 2)
    _exit(98);
}

static void serve(uint32_t slot);

static int thread_main(void *slot) {
  serve((uint32_t)(uintptr_t)slot);
  return 0;
}

// Threads have no thread-local storage of their own: they share errno, which is
// sound because one order is under way at a time and waiting tasks leave it alone.
static int64_t start_thread(uint32_t slot, uint64_t flags) {
  flags |= CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM;
  return clone(thread_main, stacks[slot] + STACK_BYTES, (int)flags, (void *)(uintptr_t)slot);
}

static int64_t start_process(struct slot *s, uint32_t slot, uint64_t flags) {
  struct clone_args args = {
      .flags = flags,
      .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD,
      .set_tid = (uintptr_t)s->set_tid,
      .set_tid_size = s->set_tid_size,
  };
  if (s->set_tid_size == 0) args.set_tid = 0;
  int64_t pid = syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) serve(slot);
  return pid;
}

static int64_t execute(uint32_t slot) {
  char to[12];
  snprintf(to, sizeof to, "%u", slot);
  char *const argv[] = {(char *)"puppet", board_fd, to, NULL};
  return execv("/proc/thread-self/exe", argv); // the leader may have none any more
}

static int64_t wait_for(struct slot *s) {
  siginfo_t info = {0};
  const int probe = WEXITED | WNOHANG | WNOWAIT;
  if (!(s->arg[2] & WNOHANG)) { // would it block? then it is not asked
    if (waitid(s->arg[0], s->arg[1], &info, probe) < 0) return -1;
    if (info.si_pid == 0) return 1;
  }
  memset(&info, 0, sizeof info);
  if (waitid(s->arg[0], s->arg[1], &info, s->arg[2] | WEXITED) < 0) return -1;
  s->info[0] = info.si_pid;
  s->info[1] = info.si_code;
  s->info[2] = info.si_status;
  return 0;
}

static int64_t set_sigchld(int64_t to) {
  struct sigaction act = {.sa_handler = SIG_DFL};
  if (to == TO_IGNORE) act.sa_handler = SIG_IGN;
  if (to == TO_NOCLDWAIT) act.sa_flags = SA_NOCLDWAIT;
  return sigaction(SIGCHLD, &act, NULL);
}

// What a fresh /proc of this task's namespace lists.
static int64_t list(struct slot *s) {
  int fs = syscall(SYS_fsopen, "proc", 0), mnt = -1, dir = -1;
  if (fs >= 0 && syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
    mnt = syscall(SYS_fsmount, fs, 0, 0);
  if (mnt >= 0) dir = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  char buf[8192];
  size_t used = 0;
  s->text[0] = 0;
  for (long n; dir >= 0 && (n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0;)
    for (long at = 0; at < n;) {
      uint16_t len;
      memcpy(&len, buf + at + 16, sizeof len);
      const char *name = buf + at + 19;
      if (*name >= '1' && *name <= '9' && used + 12 < sizeof s->text)
        used += snprintf(s->text + used, sizeof s->text - used, "%s ", name);
      at += len;
    }
  int err = errno;
  close(dir);
  close(mnt);
  close(fs);
  errno = err;
  return dir < 0 ? -1 : 0;
}

static int64_t set_number(const char *file, int64_t value) {
  char text[24];
  int n = snprintf(text, sizeof text, "%lld", (long long)value);
  int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int64_t wrote = write(fd, text, n);
  int err = errno;
  close(fd);
  errno = err;
  return wrote < 0 ? -1 : 0;
}

// Mounts the message queues of this task's IPC namespace; tells the superblock.
static int64_t mount_mqueue(int64_t target) {
  char dir[32];
  struct stat st;
  snprintf(dir, sizeof dir, "/tmp/m%d", (int)target);
  if (mount("mqueue", dir, "mqueue", 0, NULL) != 0 || stat(dir, &st) != 0) return -1;
  return st.st_dev;
}

static int64_t unmount(int64_t target) {
  char dir[32];
  snprintf(dir, sizeof dir, "/tmp/m%d", (int)target);
  return umount2(dir, 0);
}

static int64_t enter_ipc(int64_t tgid, int64_t tid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/ns/ipc", (int)tgid, (int)tid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int64_t result = setns(fd, CLONE_NEWIPC);
  int err = errno;
  close(fd);
  errno = err;
  return result;
}

static int64_t ids(struct slot *s) {
  s->info[0] = syscall(SYS_gettid);
  s->info[1] = getppid();
  s->info[2] = getpgid(0);
  s->info[3] = getsid(0);
  return getpid();
}

static int64_t carry_out(struct slot *s) {
  int64_t *a = s->arg;
  switch (s->op) {
  case CLONE: return a[1] & CLONE_THREAD ? start_thread(a[0], a[1]) : start_process(s, a[0], a[1]);
  case EXEC: return execute(a[0]);
  case EXIT: return syscall(SYS_exit, a[0]);
  case EXIT_GROUP: return syscall(SYS_exit_group, a[0]);
  case SETSID: return setsid();
  case SETPGID: return setpgid(a[0], a[1]);
  case UNSHARE: return unshare(a[0]);
  case WAIT: return wait_for(s);
  case KILL: return kill(a[0], a[1]);
  case SUBREAPER: return prctl(PR_SET_CHILD_SUBREAPER, a[0], 0, 0, 0);
  case SIGCHLD_TO: return set_sigchld(a[0]);
  case IDS: return ids(s);
  case LIST: return list(s);
  case PID_MAX: return set_number("/proc/sys/kernel/pid_max", a[0]);
  case LAST_PID: return set_number("/proc/sys/kernel/ns_last_pid", a[0]);
  case MQUEUE: return mount_mqueue(a[0]);
  case UMOUNT: return unmount(a[0]);
  case SETNS: return enter_ipc(a[0], a[1]);
  case SETUID: return syscall(SYS_setresuid, a[0], a[0], a[0]);
  }
  errno = ENOSYS;
  return -1;
}

static void answer(struct slot *s, int64_t result) {
  s->result = result;
  __atomic_store_n(&s->reply, s->order, __ATOMIC_RELEASE);
  wake(&s->reply);
}

static void serve(uint32_t slot) {
  struct slot *s = &board[slot];
  find_self(s);
  __atomic_add_fetch(&s->born, 1, __ATOMIC_RELEASE);
  wake(&s->born);
  const struct timespec idle = {IDLE_SECONDS, 0};
  for (;;) {
    uint32_t done = s->reply;
    if (__atomic_load_n(&s->order, __ATOMIC_ACQUIRE) == done) {
      long err = syscall(SYS_futex, &s->order, FUTEX_WAIT, done, &idle, NULL, 0);
      if (err < 0 && errno == ETIMEDOUT) syscall(SYS_exit_group, 97);
      continue;
    }
    int64_t result = carry_out(s);
    answer(s, result < 0 ? -errno : result);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  uint32_t slot = strtoul(argv[2], NULL, 10);
  snprintf(board_fd, sizeof board_fd, "%s", argv[1]);
  board = mmap(NULL, SLOTS * sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
  if (board == MAP_FAILED || slot >= SLOTS) return 3;
  if (board[0].born == 0) {
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0 ||
        mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
      return 4;
    for (int i = 0; i < TARGETS; i++) {
      char dir[32];
      snprintf(dir, sizeof dir, "/tmp/m%d", i);
      if (mkdir(dir, 0755) != 0) return 5;
    }
  } else if (board[slot].order != board[slot].reply) { // the leader itself has executed
    answer(&board[slot], 0);
  }
  serve(slot);
}
