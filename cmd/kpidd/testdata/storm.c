// storm makes tasks for the tests: bounded in count and, by an alarm, in time.
// It prints what it did as NAME=COUNT words, so that a test can compare.
//
//   storm fork N        N children, one after another: fork, exit, wait
//   storm thread N      N threads, one after another: create, join
//   storm exec N        N times vfork and exec of /bin/true (or $STORM_EXEC), wait
//   storm threads N     N sleeping threads of 16 KiB stack; "ready" when they are there
//   storm leader        a second thread sleeps, the leader leaves by pthread_exit
//   storm threadexec    a second thread executes sleep
//   storm comm          a hostile name, then sleep
//   storm zombie N      N children that are not waited for, then sleep
//   storm shrink N      N threads that end one by one, a millisecond apart, then sleep
//   storm reuse N       N children, one after another, named by their turn
//   storm at PID        a sleeping child with the next free number from PID on
//   storm spread N      N children, one after another, over all numbers below pid_max
//
// STORM_SECONDS bounds its life, 120 if unset.
//
// Build: cc -O2 -Wall -Wextra -pthread -o storm storm.c
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS_MAX 120
#define PAGE_NUMBERS 2048 // that one leaf page of the published tree holds
#define REUSE_NAMES 1000

static void die(const char *what) {
  fprintf(stderr, "storm: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void ready(void) {
  puts("ready");
  fflush(stdout);
}

static void sleep_on(void) {
  ready();
  for (;;) pause();
}

static long storm_fork(long n) {
  for (long i = 0; i < n; i++) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) _exit(i & 127);
    if (waitpid(pid, NULL, 0) != pid) die("wait");
  }
  return n;
}

static void *nothing(void *arg) { return arg; }

static long storm_thread(long n) {
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 64 << 10);
  for (long i = 0; i < n; i++) {
    pthread_t t;
    if ((errno = pthread_create(&t, &attr, nothing, NULL)) != 0) die("pthread_create");
    pthread_join(t, NULL);
  }
  return n;
}

static pid_t spawn(const char *path) {
  char *const argv[] = {(char *)"true", (char *)"an argument", NULL};
  char *const envp[] = {NULL};
  pid_t pid = vfork();
  if (pid == 0) {
    execve(path, argv, envp);
    _exit(127);
  }
  return pid;
}

static long storm_exec(long n) {
  const char *path = getenv("STORM_EXEC") ? getenv("STORM_EXEC") : "/bin/true";
  for (long i = 0; i < n; i++) {
    pid_t pid = spawn(path);
    if (pid < 0) die("vfork");
    int status;
    if (waitpid(pid, &status, 0) != pid) die("wait");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) die(path);
  }
  return n;
}

// Raw clone and a wait that no library knows of: 100,000 of them fit.
static int park(void *arg) {
  (void)arg;
  for (;;) syscall(SYS_pause);
  return 0;
}

static void storm_threads(long n) {
  const size_t stack = 16 << 10;
  char *mem = mmap(NULL, n * stack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mem == MAP_FAILED) die("mmap");
  const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  for (long i = 0; i < n; i++)
    if (clone(park, mem + (i + 1) * stack, flags, NULL) < 0) die("clone");
  sleep_on();
}

static void *sleeper(void *arg) {
  ready();
  for (;;) pause();
  return arg;
}

static void *executor(void *arg) {
  char *const argv[] = {(char *)"sleep", (char *)"60", NULL};
  usleep(500 * 1000);
  ready();
  execv("/bin/sleep", argv);
  die("exec sleep");
  return arg;
}

static void *short_lived(void *arg) {
  usleep((long)arg * 1000 + 50 * 1000);
  return arg;
}

static long storm_reuse(long n) {
  for (long i = 0; i < n; i++) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
      char name[16];
      snprintf(name, sizeof name, "g%u", (unsigned)i % REUSE_NAMES);
      prctl(PR_SET_NAME, name);
      usleep(2000);
      _exit(0);
    }
    if (waitpid(pid, NULL, 0) != pid) die("wait");
  }
  return n;
}

// The next fork gets number pid, or the next one that is free.
static void next_number(long pid) {
  FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "w");
  if (!f || fprintf(f, "%ld", pid - 1) < 0 || fclose(f) != 0) die("set ns_last_pid");
}

static void storm_at(long number) {
  next_number(number);
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0)
    for (;;) pause();
  printf("pid=%d\n", pid);
  sleep_on();
}

static long number_max(void) {
  long max = 0;
  FILE *f = fopen("/proc/sys/kernel/pid_max", "r");
  if (!f || fscanf(f, "%ld", &max) != 1) die("read pid_max");
  fclose(f);
  return max;
}

// The cheapest fork and exit that there is.
static pid_t flash(void) {
  pid_t pid = vfork();
  if (pid == 0) _exit(0);
  return pid;
}

static long storm_spread(long n) {
  long pages = number_max() / PAGE_NUMBERS, done = 0;
  for (long page = 0; page < pages; page++) {
    next_number(page * PAGE_NUMBERS + PAGE_NUMBERS / 4);
    for (; done < n * (page + 1) / pages; done++) {
      pid_t pid = flash();
      if (pid < 0) die("vfork");
      if (waitpid(pid, NULL, 0) != pid) die("wait");
    }
  }
  return done;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  const char *seconds = getenv("STORM_SECONDS");
  long n = argc > 2 ? atol(argv[2]) : 0;
  pthread_t t;
  alarm(seconds ? atoi(seconds) : SECONDS_MAX);
  if (!strcmp(mode, "fork")) {
    printf("forks=%ld\n", storm_fork(n));
  } else if (!strcmp(mode, "thread")) {
    printf("threads=%ld\n", storm_thread(n));
  } else if (!strcmp(mode, "exec")) {
    printf("execs=%ld\n", storm_exec(n));
  } else if (!strcmp(mode, "threads")) {
    storm_threads(n);
  } else if (!strcmp(mode, "leader")) {
    pthread_create(&t, NULL, sleeper, NULL);
    pthread_exit(NULL);
  } else if (!strcmp(mode, "threadexec")) {
    pthread_create(&t, NULL, executor, NULL);
    for (;;) pause();
  } else if (!strcmp(mode, "comm")) {
    prctl(PR_SET_NAME, "a) R 1 \n\xff(b");
    sleep_on();
  } else if (!strcmp(mode, "zombie")) {
    for (long i = 0; i < n; i++)
      if (fork() == 0) _exit(0);
    sleep_on();
  } else if (!strcmp(mode, "shrink")) {
    for (long i = 0; i < n; i++) pthread_create(&t, NULL, short_lived, (void *)i);
    sleep_on();
  } else if (!strcmp(mode, "reuse")) {
    printf("forks=%ld\n", storm_reuse(n));
  } else if (!strcmp(mode, "at")) {
    storm_at(n);
  } else if (!strcmp(mode, "spread")) {
    printf("forks=%ld\n", storm_spread(n));
  } else {
    fprintf(stderr, "storm: unknown mode \"%s\"\n", mode);
    return 2;
  }
  return 0;
}
