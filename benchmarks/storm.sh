#!/usr/bin/env bash
# A storm of short programs, watched by kpidd and by others: what each saw, what
# it cost, and how much it slowed the storm. As root, on a quiet machine.
#   benchmarks/storm.sh [EXECS] [RUNS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
execs=${1:-100000} runs=${2:-5}
work=$(mktemp -d /dev/shm/kpidd-storm-XXXXXX)
watcher=
trap '[ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true; rm -rf "$work"' EXIT

CGO_ENABLED=0 go build -o "$work/kpidd" ./cmd/kpidd
cc -O2 -pthread -o "$work/storm" cmd/kpidd/testdata/storm.c
printf '.globl _start\n_start: mov $60, %%eax\nxor %%edi, %%edi\nsyscall\n' >"$work/tiny.s"
cc -nostdlib -static -o "$work/tiny" "$work/tiny.s"
export STORM_EXEC=$work/tiny

cpu() { awk '{sub(/^.*\) /, ""); printf "%.2f", ($12 + $13) / 100}' "/proc/$1/stat"; } # seconds

# Runs the storm from two parents; prints programs a second.
storm() {
  local start end
  start=$(date +%s%N)
  timeout 100 "$work/storm" exec $((execs / 2)) >/dev/null &
  local other=$!
  timeout 100 "$work/storm" exec $((execs / 2)) >/dev/null
  wait "$other"
  end=$(date +%s%N)
  echo $((execs * 1000000000 / (end - start)))
}

# One row: NAME, what it saw, its CPU seconds, the storm's rate.
row() { printf '%-10s %-34s %8s %8s\n' "$@"; }

kpidd() { # SOURCE
  "$work/kpidd" --runtime-dir "$work/run" run --source "$1" 2>"$work/log" &
  watcher=$!
  until grep -q ready "$work/log"; do sleep 0.05; done
  local rate before seconds
  before=$("$work/kpidd" --runtime-dir "$work/run" status --json)
  seconds=$(cpu "$watcher")
  rate=$(storm)
  sleep 0.2
  seconds=$(awk "BEGIN {print $(cpu "$watcher") - $seconds}")
  "$work/kpidd" --runtime-dir "$work/run" status --json >"$work/after"
  "$work/kpidd" --runtime-dir "$work/run" audit >"$work/audit" || true
  kill "$watcher"
  wait "$watcher" || true
  watcher=
  row "kpidd $1" "$(B=$before python3 - "$work/after" <<'P'
import json, os, sys
a, b = json.load(open(sys.argv[1])), json.loads(os.environ["B"])
print(f'{a["events"] - b["events"]} events, {a["lost"]} lost, {a["ns_per_event"]} ns each')
P
)" "$seconds" "$rate"
  grep -q 'missing 0 ghosts 0 mismatched 0' "$work/audit" || cat "$work/audit"
}

peer() { # NAME COMMAND...: counts its lines about the storm's program
  local name=$1
  shift
  command -v "$1" >/dev/null || { row "$name" "not installed" - -; return; }
  # bpftrace looks for tracefs, which need not be mounted.
  unshare -m sh -c 'mountpoint -q /sys/kernel/tracing || mount -t tracefs t /sys/kernel/tracing; exec "$@"' sh "$@" >"$work/out" 2>&1 &
  watcher=$!
  sleep 5 # compiles its program
  local rate seconds
  rate=$(storm)
  sleep 1
  seconds=$(cpu "$watcher") || { cat "$work/out"; return 1; }
  kill -INT "$watcher"
  wait "$watcher" || true
  watcher=
  row "$name" "$(grep -cE 'tiny|an argument' "$work/out" || true) lines name the program" "$seconds" "$rate"
}

row watcher saw "cpu s" "storm/s"
for ((i = 0; i < runs; i++)); do
  row none - - "$(storm)"
  kpidd perf
  kpidd netlink
  peer forkstat forkstat -e exec
  peer execsnoop execsnoop.bt
done
