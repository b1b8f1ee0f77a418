# Row PL8: dense mode. First, it follows the load, with 8 microguests and an interval of a second
# instead of a minute. Then its effect is measured with 32 microguests in pairs that exchange a
# request every 2 ms, default and dense in alternation. `cargo test -p taut-plan dense` has the
# property test over random load traces.
. "$here/tools/bench/rig.sh"

row_PL8() {
  local rounds=5 seconds=6
  if quick; then rounds=2 seconds=4; note "quick: 2 rounds of 4 s instead of 5 of 6 s"; fi
  pl8_follows || return 1
  stop_daemon
  pl8_is_worth "$rounds" "$seconds"
}

# Dense mode follows the load: each threshold is missed alone, and tautd dies once.
pl8_follows() {
  local index right=0 wanted=0 fabric before
  start_daemon && taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  taut host set Net.NetTuneInterval=1 "Net.NetTuneThreshold=8 8 50" Net.NetTuneHostMode=dense
  for index in $(seq 8); do micro "m$index" "10.84.0.$index" || return 1; done
  pl8_load
  pl8_step on "8 VMs, 8 vCPUs and every pCPU busy"
  taut vm stop m8
  pl8_step off "one VM less"
  taut vm start --wait m8
  pl8_step on "it runs again"
  taut host set "Net.NetTuneThreshold=8 9 50"
  pl8_step off "one vCPU more is asked for"
  taut host set "Net.NetTuneThreshold=8 8 50"
  pl8_step on "it is not any more"
  fabric=$(fabric_pid) before=$(taut -o json host tune | jq .state.changed_ms)
  kill -9 "$daemon"
  wait "$daemon" 2>/dev/null
  start_daemon || return 1
  wanted=$((wanted + 1))
  if [ "$(fabric_pid)" = "$fabric" ] && [ "$(taut -o json host tune | jq "[.state.on, .state.changed_ms] == [true, $before]")" = true ]; then
    right=$((right + 1))
    note "on: tautd was killed and started again, the fabric went on"
  fi
  pl8_step on "the test after that"
  pl8_end_load
  # Other programs on this machine count as well, so this needs a machine that they leave half idle.
  sleep 3
  if [ "$(taut -o json host tune | jq .state.test.reading.utilisation)" -ge 50 ]; then
    note "other programs keep the pCPUs busy: in place of the load's end, more load is asked for than there is"
    taut host set "Net.NetTuneThreshold=8 8 100"
    pl8_step off "100 % is asked for"
  else
    pl8_step off "the load is gone"
  fi
  taut host set "Net.NetTuneThreshold=8 8 0"
  pl8_step on "no utilisation is asked for"
  taut host set Net.NetTuneHostMode=default
  pl8_step off "the mode is default"
  taut -o json events | jq -r '.[] | select(.subject == "host") | .message' >"$OUT/pl8-events.txt"
  goal PL8-follows "$right of $wanted steps as the load says" "all" "$right == $wanted"
}

# pl8_step on|off WHY: waits for that state, for 30 tests at most.
pl8_step() {
  local on=false
  [ "$1" = on ] && on=true
  wanted=$((wanted + 1))
  for _ in $(seq 120); do
    if [ "$(taut -o json host tune | jq .state.on)" = $on ]; then
      right=$((right + 1))
      note "$1: $2"
      return
    fi
    sleep 0.25
  done
  note "not $1 within 30 s: $2: $(taut -o json host tune | jq -c .state.test)"
}

# Keeps every pCPU busy until pl8_end_load, for ten minutes at most.
pl8_load() {
  spinners=()
  local _
  for _ in $(seq "$(nproc)"); do timeout 600 sh -c 'while :; do :; done' & spinners+=($!); done
}
pl8_end_load() { kill "${spinners[@]}" 2>/dev/null; wait "${spinners[@]}" 2>/dev/null; }

# pl8_is_worth ROUNDS SECONDS: measures the effect of dense mode.
pl8_is_worth() {
  local rounds=$1 seconds=$2 pairs=16 index round mode file=$OUT/pl8.jsonl fabric micros
  : >"$file"
  start_daemon && prefer "$daemon" && taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  for index in $(seq $pairs); do micro "a$index" "10.84.1.$index" && micro "b$index" "10.84.1.$((100 + index))" || return 1; done
  fabric=$(fabric_pid) micros=$(taut -o json vm list | jq '.[].status.pid')
  for index in $fabric $micros; do prefer "$index"; done
  taut host set Net.NetTuneInterval=1 "Net.NetTuneThreshold=32 32 0"
  for round in $(seq "$rounds"); do
    for mode in default dense; do
      taut host set Net.NetTuneHostMode=$mode
      until [ "$(taut -o json host tune | jq .state.on)" = "$([ $mode = dense ] && echo true || echo false)" ]; do sleep 0.1; done
      pl8_sample $mode "$seconds" >>"$file" || pl8_sample $mode "$seconds" >>"$file" || return 1
    done
  done
  pl8_row() { jq "select(.mode == \"$1\").$2" "$file" | median; }
  for mode in default dense; do
    note "$mode: $(pl8_row $mode per_second) requests/s; per request $(pl8_row $mode switches) context switches, $(pl8_row $mode cpu_us) us of CPU, $(pl8_row $mode kicks) kicks, $(pl8_row $mode interrupts) interrupts, the fabric slept $(pl8_row $mode sleeps) times"
  done
  goal PL8-switches "$(pl8_row dense switches) context switches a request, default $(pl8_row default switches): $(ratio "$(pl8_row dense switches)" "$(pl8_row default switches)") x" "<= 0.60 x" "$(pl8_row dense switches) <= 0.6 * $(pl8_row default switches)"
  goal PL8-cpu "$(pl8_row dense cpu_us) us of CPU a request, default $(pl8_row default cpu_us): $(ratio "$(pl8_row dense cpu_us)" "$(pl8_row default cpu_us)") x" "< 1 x" "$(pl8_row dense cpu_us) < $(pl8_row default cpu_us)"
}

# pl8_sample MODE SECONDS: prints one line of JSON. Requests and context switches of both kinds are
# counted in the middle of the run.
pl8_sample() {
  local index runs=() idle before after
  idle=$(pl8_frames)
  for index in $(seq "$pairs"); do
    timeout 60 "$BIN/taut" bench ping "a$index" "b$index" --interval 2 --duration "$(($2 + 6))" >"$lab/ping$index" 2>&1 </dev/null &
    runs+=($!)
  done
  # All pairs have begun when each has sent about a hundred frames.
  for _ in $(seq 100); do [ "$(pl8_frames)" -lt $((idle + 200 * pairs)) ] || break; sleep 0.1; done
  before=$(pl8_count)
  sleep "$(($2 - 2))"
  after=$(pl8_count)
  if ! kill -0 "${runs[0]}" 2>/dev/null; then
    tail -n 5 "$lab/ping1" >&2
    echo "the load ended before it was counted: this machine is too busy" >&2
    return 1
  fi
  wait "${runs[@]}" || { tail "$lab/ping1" >&2; return 1; }
  jq -nc --arg mode "$1" --argjson a "$before" --argjson b "$after" '
    (($b.frames - $a.frames) / 2) as $requests
    | def each(field): (($b | field) - ($a | field)) / $requests * 1000 | round / 1000;
    {mode: $mode, per_second: ($requests / ($b.at - $a.at) | round), switches: each(.switches), cpu_us: each(.cpu_us), kicks: each(.kicks),
     interrupts: each(.interrupts), sleeps: each(.sleeps)}'
}
pl8_frames() { taut -o json port list | jq '[.[].counters.tx_frames] | add'; }
pl8_count() {
  local pid switches cpu threads=() stats=()
  for pid in $fabric $micros; do threads+=(/proc/"$pid"/task/*/status) stats+=("/proc/$pid/stat"); done
  # A thread may have ended in the meantime.
  switches=$(cat "${threads[@]}" 2>/dev/null | awk '/ctxt_switches/ {sum += $2} END {print sum}')
  cpu=$(sed 's/.*) //' "${stats[@]}" | awk -v tick="$(getconf CLK_TCK)" '{sum += $12 + $13} END {printf "%d", sum * 1000000 / tick}')
  jq -nc --argjson switches "$switches" --argjson cpu "$cpu" --argjson at "$(date +%s.%N)" --argjson ports "$(taut -o json port list)" \
    --argjson daemon "$(taut -o json daemon show)" '
    {at: $at, switches: $switches, cpu_us: $cpu, sleeps: ([$daemon.workers[].counters.sleeps] | add)}
    + ($ports | {frames: ([.[].counters.tx_frames] | add), kicks: ([.[].counters.kicks] | add), interrupts: ([.[].counters.interrupts] | add)})'
}
