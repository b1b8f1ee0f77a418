# Rig for measuring switches, each on core 0, one at a time, with the generator on core 1. Sourced;
# needs $lab (tools/goals/lab.sh), $BIN, $OUT and $here.
#
#   rig_open                     reserves huge pages, makes folders
#   compare LEAST ROUNDS CELL…   measures cells in alternation; samples are JSON lines in $samples
#   rig_close                    gives everything back
#
# A switch is a file of tools/bench/ that defines SWITCH_start, SWITCH_stop, SWITCH_pids,
# SWITCH_sockets, and optionally SWITCH_prepare. It starts at its first sample and runs (SIGCONT)
# only while it is measured. Its polling threads are stopped (SIGSTOP) meanwhile, so that samples of
# all switches alternate without restarts. Sourcing this file again keeps its state.
if [ -z "${rig_repeats:-}" ]; then
  rig= samples= rig_started=() rig_repeats=3 rig_seconds=0.5
fi

rivals_folder() { echo "${TAUT_RIVALS:-$here/../shared/bench/switch}"; }

rig_open() {
  [ -z "$rig" ] || return 0
  rig=$lab/rig
  samples=${samples:-$OUT/switch-samples.jsonl}
  mkdir -p "$rig/huge" "$(dirname "$samples")"
  : >"$samples"
  huge_pages_before=$(cat /proc/sys/vm/nr_hugepages)
  owes "echo $huge_pages_before >/proc/sys/vm/nr_hugepages"
  owes "umount $rig/huge"
  rig_pages 1280
  mount -t hugetlbfs -o pagesize=2M none "$rig/huge"
}

# rig_pages N: reserves at least so many huge pages. Compacts memory and drops caches if that is
# necessary.
rig_pages() {
  local remedy got
  for remedy in none compact_memory drop_caches; do
    got=$(cat /proc/sys/vm/nr_hugepages)
    [ "$got" -lt "$1" ] || return 0
    [ $remedy = none ] || echo 1 >"/proc/sys/vm/$remedy"
    echo "$1" >/proc/sys/vm/nr_hugepages
  done
  got=$(cat /proc/sys/vm/nr_hugepages)
  [ "$got" -ge "$1" ] || { echo "only $got of $1 huge pages could be reserved" >&2; return 1; }
}

rig_close() {
  [ -n "$rig" ] || return 0
  local switch
  for switch in "${rig_started[@]}"; do
    rig_signal CONT "$switch"
    "${switch}_stop" >>"$rig/log" 2>&1 || true
  done
  rig_started=()
  mountpoint -q "$rig/huge" && { umount "$rig/huge" || { sleep 1; umount "$rig/huge"; }; }
  echo "$huge_pages_before" >/proc/sys/vm/nr_hugepages
  rig=
}

# prefer PID: gives the process's session (autogroup) priority over everything else on this machine.
# The process should have a session of its own.
prefer() { [ ! -w "/proc/$1/autogroup" ] || echo -20 >"/proc/$1/autogroup" 2>/dev/null || true; }

# preferred SECONDS COMMAND…: runs a command in a session of its own with priority, for so long at
# most.
preferred() {
  local limit=$1
  shift
  timeout "$limit" setsid --wait sh -c 'echo -20 >/proc/self/autogroup 2>/dev/null; exec "$@"' preferred "$@"
}

rig_signal() {
  local pid
  for pid in $("$2_pids"); do kill "-$1" "$pid" 2>/dev/null || true; done
}

rig_resume() {
  # Other programs may have changed the number of huge pages.
  rig_pages 1280 || return 1
  rig_signal CONT "$1"
  if [[ " ${rig_started[*]} " == *" $1 "* ]]; then return; fi
  "$1_start" >>"$rig/log" 2>&1 || { echo "$1 does not start:" >&2; tail "$rig/log" >&2; return 1; }
  rig_started+=("$1")
  local pid
  for pid in $("$1_pids"); do prefer "$pid"; done
}

# sample CELL: measures once: $rig_repeats samples of $rig_seconds each. A cell is one line of
# words, `SWITCH GENERATOR MODE SIZE [GENERATOR'S OPTIONS…]`; generators.sh has the generators.
sample() {
  local cell=$1 switch generator options status=0
  read -r switch generator options <<<"$cell"
  rig_resume "$switch" || return 1
  ! declare -F "${switch}_prepare" >/dev/null || "${switch}_prepare" >>"$rig/log" 2>&1
  # shellcheck disable=SC2086
  "generate_$generator" "$switch" $options >"$rig/sample" 2>"$rig/error" || status=$?
  # Lets the switch notice that its front end has gone, before it is stopped.
  sleep 0.1
  rig_signal STOP "$switch"
  [ $status = 0 ] || { echo "no sample of $cell:" >&2; tail -n 3 "$rig/error" >&2; return 1; }
  # A cache line's round trip between the cores tells how near they are to each other.
  jq -c --arg cell "$cell" --arg switch "$switch" --arg generator "$generator" '
    {cell: $cell, switch: $switch, generator: $generator} + .
    + {state: (.probe_ns | if . == null then "unknown" elif max < 200 then "near" elif min > 250 and max < 2000 then "far" else "moved" end)}' "$rig/sample" >>"$samples"
}

# compare LEAST ROUNDS CELL…: samples all cells in turn until there is a state (near, far) in which
# each has LEAST samples, for ROUNDS rounds at most. Sets $state to it, to near if both qualify;
# fails if none does.
compare() {
  local least=$1 rounds=$2 round cell
  shift 2
  for round in $(seq "$rounds"); do
    # A switch that has just started may need a second attempt.
    for cell in "$@"; do sample "$cell" || sample "$cell" || return 1; done
    for state in near far; do
      for cell in "$@"; do [ "$(count "$cell")" -ge "$least" ] || continue 2; done
      return 0
    done
  done
  state=
  note "the machine moved too often: in no state was everything measured $least times"
  return 1
}

count() { jq -s --arg cell "$1" --arg state "$state" '[.[] | select(.cell == $cell and .state == $state)] | length' "$samples"; }

# figure CELL EXPRESSION: prints the median of EXPRESSION (jq, on one sample) over the cell's
# samples in $state.
figure() {
  jq -s -r --arg cell "$1" --arg state "$state" "[.[] | select(.cell == \$cell and .state == \$state) | $2 | select(. != null)] | sort
    | if length == 0 then empty elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end
    | . * 1000 | round / 1000" "$samples"
}
