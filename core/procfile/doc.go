// Package procfile reads and parses the files of /proc/PID, and renders the
// hostile names found there. It works on raw descriptors below one root, which
// is /proc or a fixture, into memory of the caller: reading a task's files
// allocates nothing. Start reading at Proc; ParseStat is the parser, listing
// has its own rules in list.go, AppendEscaped and AppendJSONString are output.
package procfile
