package task_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A script is what the tasks of one small machine do, in order: one step a line,
// first who does it, then the system call and its arguments, and behind a "=>" what
// it must give, if that is said. Tasks have names; the first is init, number 1 of
// a fresh PID namespace, a session and group of its own, and it has executed.
//
//	# text up to the end of the line
//	rule M1.4 M5.1              the rules that the script is about
//	below                       it counts that init's namespace is of level 1
//	init clone a                clone(2): a new process; the result is its number
//	init clone b CLONE_NEWPID set_tid=1,9   flags, and numbers, innermost first
//	a clone t CLONE_THREAD
//	t exec                      from then on a acts for the process, t is no more
//	a exit 3                    this task alone
//	a exit_group 3
//	a setsid
//	a setpgid b c               b to the group of c; 0 as in setpgid(2)
//	a unshare CLONE_NEWPID
//	a wait any WNOHANG WNOWAIT  or: pid b, pgid b, pgid 0; => 5 exited 3, none, blocks
//	a kill b SIGKILL
//	a subreaper 1
//	a sigchld SIG_IGN           or SIG_DFL, SA_NOCLDWAIT
//	a ids                       => pid tid ppid pgid sid, as a sees them
//	a list                      => the processes that a's namespace lists, in order
//	a pid_max 400               of a's namespace
//	a last_pid 299              so that the next number is 300
//	a setuid 1000               and so without capabilities
//	a mqueue m1                 mount(2): the message queues of a's IPC namespace, at a
//	                            target m0 to m9; => ok new, or ok as m0: which mount
//	                            of the same superblock there is already
//	a umount m1
//	a setns b                   into b's IPC namespace
//
// A step of a task that has ended gives "dead", of one that waits in its vfork
// "busy", of one that would request a number outside init's namespace, which is the
// machine's own, "refused", of one that is about a task of which nothing certain is
// left, "gone", and nothing happens.
type script struct {
	name  string
	rules []string
	below bool
	steps []step
}

type step struct {
	line   int // in the text, from 1
	actor  string
	verb   verb
	name   string   // task made, moved, killed or waited for
	group  string   // setpgid: task whose group it is; wait: "any", "pid" or "pgid"
	flags  uint64   // CLONE_… or W…
	setTID []int    // clone: innermost first
	value  int      // exit code, signal, switch, number, user
	what   string   // sigchld: the disposition; mqueue, umount: the target
	want   []string // what it must give, none if that is not said
}

type verb string

const (
	doClone     verb = "clone"
	doExec      verb = "exec"
	doExit      verb = "exit"
	doExitGroup verb = "exit_group"
	doSetsid    verb = "setsid"
	doSetpgid   verb = "setpgid"
	doUnshare   verb = "unshare"
	doWait      verb = "wait"
	doKill      verb = "kill"
	doSubreaper verb = "subreaper"
	doSigchld   verb = "sigchld"
	doIDs       verb = "ids"
	doList      verb = "list"
	doPIDMax    verb = "pid_max"
	doLastPID   verb = "last_pid"
	doSetuid    verb = "setuid"
	doMQueue    verb = "mqueue"
	doUmount    verb = "umount"
	doSetns     verb = "setns"
)

// word is a flag or a signal by its name in the kernel's headers.
type word struct {
	name  string
	value uint64
}

var (
	cloneFlags = []word{
		{"CLONE_THREAD", unix.CLONE_THREAD}, {"CLONE_PARENT", unix.CLONE_PARENT},
		{"CLONE_VFORK", unix.CLONE_VFORK}, {"CLONE_NEWPID", unix.CLONE_NEWPID}, {"CLONE_NEWIPC", unix.CLONE_NEWIPC},
	}
	waitFlags = []word{
		{"WNOHANG", unix.WNOHANG}, {"WNOWAIT", unix.WNOWAIT},
	}
	signals = []word{
		{"0", 0}, {"SIGTERM", uint64(unix.SIGTERM)}, {"SIGKILL", uint64(unix.SIGKILL)},
	}
	dispositions = []string{"SIG_DFL", "SIG_IGN", "SA_NOCLDWAIT"}
)

func (s *step) has(flag uint64) bool { return s.flags&flag != 0 }

// parse reads a script. Errors name the line.
func parse(name, text string) (*script, error) {
	sc := &script{name: name}
	tasks := map[string]bool{"init": true}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		call, want, expects := strings.Cut(line, "=>")
		words := strings.Fields(call)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "rule":
			sc.rules = append(sc.rules, words[1:]...)
			continue
		case "below":
			sc.below = true
			continue
		}
		s, err := parseStep(words)
		if err == nil {
			err = s.checkNames(tasks)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		s.line = i + 1
		if expects {
			s.want = []string{strings.Join(strings.Fields(want), " ")}
		}
		sc.steps = append(sc.steps, s)
	}
	return sc, nil
}

func parseStep(words []string) (s step, err error) {
	if len(words) < 2 {
		return s, fmt.Errorf("%q: want a task and what it does", strings.Join(words, " "))
	}
	s.actor, s.verb = words[0], verb(words[1])
	args := words[2:]
	least := map[verb]int{
		doClone: 1, doExec: 0, doExit: 1, doExitGroup: 1, doSetsid: 0, doSetpgid: 2, doUnshare: 1, doWait: 1,
		doKill: 2, doSubreaper: 1, doSigchld: 1, doIDs: 0, doList: 0, doPIDMax: 1, doLastPID: 1, doSetuid: 1,
		doMQueue: 1, doUmount: 1, doSetns: 1,
	}
	n, known := least[s.verb]
	switch {
	case !known:
		return s, fmt.Errorf("no step %q", s.verb)
	case len(args) < n:
		return s, fmt.Errorf("%s: got %d arguments, want %d", s.verb, len(args), n)
	}
	rest := args[n:]
	switch s.verb {
	case doClone:
		s.name = args[0]
		rest, err = s.takeFlags(rest, cloneFlags)
		if err == nil && len(rest) > 0 {
			s.setTID, err = parseNumbers(rest[0])
			rest = rest[1:]
			if s.has(unix.CLONE_THREAD) {
				err = errors.New("clone: the script language requests no numbers for threads")
			}
		}
	case doSetpgid:
		s.name, s.group = args[0], args[1]
	case doUnshare:
		rest, err = s.takeFlags(args, cloneFlags)
	case doWait:
		if s.group = args[0]; s.group != "any" {
			if len(rest) == 0 {
				return s, fmt.Errorf("wait %s: for whom?", s.group)
			}
			s.name, rest = rest[0], rest[1:]
		}
		rest, err = s.takeFlags(rest, waitFlags)
	case doKill:
		s.name = args[0]
		i := slices.IndexFunc(signals, func(w word) bool { return w.name == args[1] })
		if i < 0 {
			return s, fmt.Errorf("no signal %q", args[1])
		}
		s.value = int(signals[i].value)
	case doSigchld:
		if s.what = args[0]; !slices.Contains(dispositions, s.what) {
			return s, fmt.Errorf("no disposition %q", s.what)
		}
	case doMQueue, doUmount:
		s.what = args[0]
		_, err = s.target()
	case doSetns:
		s.name = args[0]
	case doExec, doSetsid, doIDs, doList:
	default:
		s.value, err = strconv.Atoi(args[0])
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%s: %q is too much", s.verb, strings.Join(rest, " "))
	}
	return s, err
}

// target is the number of the place to mount at.
func (s *step) target() (int, error) {
	if len(s.what) != 2 || s.what[0] != 'm' || s.what[1] < '0' || s.what[1] > '9' {
		return 0, fmt.Errorf("%s: no target %q", s.verb, s.what)
	}
	return int(s.what[1] - '0'), nil
}

// takeFlags takes the leading words that are flags.
func (s *step) takeFlags(words []string, flags []word) (rest []string, err error) {
	for len(words) > 0 && !strings.HasPrefix(words[0], "set_tid=") {
		i := slices.IndexFunc(flags, func(w word) bool { return w.name == words[0] })
		if i < 0 {
			return words, fmt.Errorf("%s: no flag %q", s.verb, words[0])
		}
		s.flags |= flags[i].value
		words = words[1:]
	}
	return words, nil
}

func parseNumbers(word string) (numbers []int, err error) {
	for field := range strings.SplitSeq(strings.TrimPrefix(word, "set_tid="), ",") {
		nr, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, nr)
	}
	return numbers, nil
}

// checkNames holds that every task is made once, before it is named.
func (s *step) checkNames(tasks map[string]bool) error {
	if !tasks[s.actor] {
		return fmt.Errorf("no task %q", s.actor)
	}
	if s.verb == doClone {
		if tasks[s.name] || slices.Contains([]string{"0", "rule", "below"}, s.name) {
			return fmt.Errorf("clone: the name %q is taken", s.name)
		}
		tasks[s.name] = true
	}
	for _, name := range []string{s.name, s.group} {
		switch name {
		case "", "0", "any", "pid", "pgid":
		default:
			if !tasks[name] {
				return fmt.Errorf("%s: no task %q", s.verb, name)
			}
		}
	}
	return nil
}

// String is the step's line, without what it must give.
func (s *step) String() string {
	words := []string{s.actor, string(s.verb)}
	add := func(more ...string) {
		for _, w := range more {
			if w != "" {
				words = append(words, w)
			}
		}
	}
	switch s.verb {
	case doClone:
		add(s.name, flagNames(s.flags, cloneFlags))
		if s.setTID != nil {
			add("set_tid=" + strings.ReplaceAll(strings.Trim(fmt.Sprint(s.setTID), "[]"), " ", ","))
		}
	case doSetpgid:
		add(s.name, s.group)
	case doUnshare:
		add(flagNames(s.flags, cloneFlags))
	case doWait:
		add(s.group, s.name, flagNames(s.flags, waitFlags))
	case doKill:
		i := slices.IndexFunc(signals, func(w word) bool { return int(w.value) == s.value })
		add(s.name, signals[i].name)
	case doSigchld, doMQueue, doUmount:
		add(s.what)
	case doSetns:
		add(s.name)
	case doExec, doSetsid, doIDs, doList:
	default:
		add(strconv.Itoa(s.value))
	}
	return strings.Join(words, " ")
}

func flagNames(flags uint64, names []word) string {
	var set []string
	for _, w := range names {
		if flags&w.value != 0 {
			set = append(set, w.name)
		}
	}
	return strings.Join(set, " ")
}

// String is the script's text; parse reads it back.
func (sc *script) String() string {
	var b strings.Builder
	if len(sc.rules) > 0 {
		fmt.Fprintf(&b, "rule %s\n", strings.Join(sc.rules, " "))
	}
	if sc.below {
		b.WriteString("below\n")
	}
	for i := range sc.steps {
		b.WriteString(sc.steps[i].String())
		for _, want := range sc.steps[i].want {
			b.WriteString(" => " + want)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
