# Row HS3: speed of this build beside the build of the old commit. Both run at once, each with a
# daemon and guests of its own; short samples alternate in the order ABBA. A sample is the median of
# five repeats of 0.1 s. Pairs are added until the 95 % interval of the median ratio is at most 2 %
# wide, or there are 60 pairs. One load generator, this build's, loads the switches of both builds.
row_HS3() {
  local build
  hs3_build || return 1
  hs3_most=60
  if quick; then hs3_most=10; note "quick: at most 10 pairs a cell instead of 60"; fi
  declare -gA hs3_bin=([before]=$hs3_target/release [after]=$BIN) hs3_daemon=()
  hs3_lab=$lab
  rig_open || return 1
  rig_repeats=5 rig_seconds=0.1 before_settle=0.1 after_settle=0.1 rig_generator=${hs3_bin[after]}/taut
  hs3_compare DP1-64 "hs3_frames .mpps one-way 64" || return 1
  hs3_compare DP2-256 "hs3_frames .mpps one-way 256" || return 1
  hs3_compare DP2-1518 "hs3_frames .mpps one-way 1518" || return 1
  hs3_compare DP3-packed "hs3_frames .mpps one-way 64 --packed" || return 1
  hs3_compare DP3-both "hs3_frames .mpps both-ways 64 --packed" || return 1
  hs3_compare DP5-traversal "hs3_frames 1/.traversal.p50_ns traversal 64" || return 1
  rig_close
  unset rig_generator

  export TAUT_MICRO_VMCI=buffer=65580,rx=16,tx=16,copy=on
  hs3_compare VC-G1 "hs3_vsock .mbit_s --message 64KiB --socket-size 256KiB" pair || return 1
  unset TAUT_MICRO_VMCI
  hs3_compare VC-G3 "hs3_vsock 1/.p50_us --mode rr --message 256 --socket-size 64KiB" pair --fabric-poll-us 1000 \
    || return 1
  hs3_compare SK4-rr "hs3_tcp 1/.p50_us rr" pair || return 1
  hs3_compare SK4-stream "hs3_tcp .mbit_s stream --pattern bulk" pair || return 1
  enter_scope && hs3_compare PL2 hs3_neighbours neighbours || return 1
  hs3_end
}

# hs3_build: the programs of the old commit, built once, in $hs3_target/release.
hs3_build() {
  hs_old_tree || return 1
  hs3_target=${CARGO_TARGET_DIR:-$here/target}/before/target
  [ -x "$hs3_target/release/tautd" ] && return
  note "building $hs_before"
  (cd "$hs_old" && CARGO_TARGET_DIR=$hs3_target cargo build -q --release --workspace --bins \
    --exclude taut-tests --exclude taut-guest --exclude taut-fuzz-targets) || return 1
}

# hs3_use BUILD: everything that follows is done with this build, in a laboratory of its own.
hs3_use() {
  BIN=${hs3_bin[$1]} lab=$hs3_lab/$1 daemon=${hs3_daemon[$1]:-}
  TAUT_SOCKET=$lab/run/tautd.sock
  mkdir -p "$lab"
}
hs3_end() {
  local build
  for build in before after; do
    hs3_use "$build"
    ip netns del "taut-goal-$build" 2>/dev/null || true
    stop_daemon
    hs3_daemon[$build]=
  done
  lab=$hs3_lab daemon=
}
# Takes the place of the other sets' end_stage.
end_stage() { [ -z "${hs3_lab:-}" ] || hs3_end; }

# hs3_stage KIND [OPTIONS…]: a daemon of each build with these options, and microguests: a pair, or
# one that can be latency-sensitive with four that compute.
hs3_stage() {
  local build kind=$1 index
  hs3_end
  for build in before after; do
    hs3_use "$build"
    start_daemon "${@:2}" && taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
    hs3_daemon[$build]=$daemon
    prefer "$daemon"
    prefer "$(fabric_pid)"
    if [ "$kind" = pair ]; then
      vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 || return 1
    else
      reserved=$'memory_reservation = "full"\n[cpu]\nreservation = "full"'
      stage_vm micro rt1 10.85.0.1 "$reserved" || return 1
      for index in 1 2 3 4; do stage_vm micro "n$index" "10.85.0.$((index + 10))" "" || return 1; done
      taut netns attach "taut-goal-$build" --portgroup lan --ip 10.85.0.100/24 >/dev/null || return 1
    fi
  done
}

# One sample each, higher is better: sets hs3_got to the figure, and the machine's state if known.
hs3_frames() { # BUILD FIELD MODE SIZE [OPTIONS…]
  sample "$1 taut ${*:3}" || sample "$1 taut ${*:3}" || return 1
  hs3_got=$(tail -n "$rig_repeats" "$samples" \
    | jq -sr "\"\([.[] | $2] | sort | .[length / 2 | floor]) \([.[].state] | unique | join(\"+\"))\"")
}
hs3_vsock() { # BUILD FIELD OPTIONS…
  hs3_got=$(preferred 60 "$BIN/taut" -o json bench vsock a b "${@:3}" --duration 0.1 --repeat 5 | jq ".cells[0].median | $2")
}
hs3_tcp() { # BUILD FIELD OPTIONS…
  preferred 60 "$BIN/taut" bench "$3" a b "${@:4}" --duration 0.1 --repeat 5 --json "$lab/tcp.json" >/dev/null || return 1
  hs3_got=$(jq ".a.median | $2" "$lab/tcp.json")
}
hs3_neighbours() { # BUILD: requests a second of a VM that is high beside four that compute
  taut bench neighbours "netns/taut-goal-$1" rt1 --address 10.85.0.1 --beside n1 n2 n3 n4 --duration 0.4 \
    --repeat 2 --json "$lab/neighbours.json" >/dev/null || return 1
  hs3_got=$(neighbour_figure "$lab/neighbours.json" high per_s)
}

# The switches of the rig: the fabric of either build.
for hs3_name in before after; do
  eval "${hs3_name}_start() { hs3_switch_start $hs3_name; }; ${hs3_name}_stop() { hs3_switch_stop $hs3_name; }
    ${hs3_name}_pids() { echo \"\${hs3_fabric[$hs3_name]:-}\"; }
    ${hs3_name}_sockets() { echo \"\$rig/$hs3_name/0 \$rig/$hs3_name/1\"; }"
done
declare -A hs3_fabric=() hs3_switch=()
hs3_switch_start() {
  local end dir=$rig/$1
  local -x TAUT_SOCKET=$dir/run/tautd.sock
  mkdir -p "$dir"
  setsid "$BIN/tautd" --state-dir "$dir/state" --run-dir "$dir/run" --fabric-cpus 0 \
    --fabric-mode polling 2>"$dir/log" &
  hs3_switch[$1]=$!
  for _ in $(seq 500); do hs3_fabric[$1]=$(fabric_pid 2>/dev/null); [ -z "${hs3_fabric[$1]}" ] || break; sleep 0.02; done
  taut host show >/dev/null && taut vswitch create sw && taut portgroup create plain --vswitch sw || return 1
  for end in 0 1; do
    taut port attach "end$end" --portgroup plain --mac "02:11:00:00:00:0$end" --path "$dir/$end" --listen || return 1
  done
  for _ in $(seq 100); do [ -S "$dir/0" ] && [ -S "$dir/1" ] && return; sleep 0.02; done
  return 1
}
hs3_switch_stop() {
  TAUT_SOCKET=$rig/$1/run/tautd.sock taut shutdown --everything
  wait "${hs3_switch[$1]}" || true
  hs3_fabric[$1]=
}

# hs3_compare ID SAMPLER [STAGE…]: adds pairs of samples, prints the ratio after ÷ before with its
# interval. A pair whose samples found the machine in different states does not count. The stage is
# made anew after every 15 pairs, because where the scheduler puts its threads lasts for long.
hs3_compare() {
  local build order tries pairs=$OUT/hs3-$1.txt ratio=0 low=0 high=0 pair=0 width=9 mean=0
  local -A got=()
  : >"$pairs"
  for tries in $(seq $((2 * hs3_most))); do
    [ "$pair" -lt "$hs3_most" ] || break
    [ -z "${3:-}" ] || [ $((tries % 15)) != 1 ] || hs3_stage "${@:3}" || return 1
    order="before after"
    [ $((tries % 2)) = 1 ] || order="after before"
    for build in $order; do
      hs3_use "$build"
      hs3_got=
      # shellcheck disable=SC2086
      ${2%% *} "$build" $([[ $2 != *' '* ]] || echo "${2#* }") && [ -n "$hs3_got" ] || { lab=$hs3_lab; return 1; }
      got[$build]=$hs3_got
    done
    lab=$hs3_lab
    [[ ${got[before]} != *' '* || ${got[before]#* } = "${got[after]#* }" ]] || continue
    echo "${got[before]%% *} ${got[after]%% *}" >>"$pairs"
    read -r ratio low high pair width mean < <(hs3_interval "$pairs")
    if awk "BEGIN{exit !($width <= 0.02)}"; then break; fi
  done
  goal "HS3-$1" "$ratio ($low to $high, $pair pairs, mean $mean)" "lower limit >= 0.98" "$low >= 0.98"
}

# hs3_interval FILE: median ratio, lower and upper limit of its 95 % interval, pairs, width, and the
# mean ratio. The limits are ratios of the sorted list, by rank, so they hold for any distribution:
# a program of the host that disturbs one sample in ten makes the mean's interval twice as wide.
hs3_interval() {
  awk '{print $2 / $1}' "$1" | sort -g | awk '{v[NR] = $1; sum += log($1)}
    END{if (NR < 8) {print 0, 0, 9, NR, 9, 0; exit}
      rank = int((NR - 1.96 * sqrt(NR)) / 2); if (rank < 1) rank = 1
      low = v[rank]; high = v[NR + 1 - rank]
      median = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
      printf "%.4f %.4f %.4f %d %.4f %.4f\n", median, low, high, NR, high - low, exp(sum / NR)}'
}
