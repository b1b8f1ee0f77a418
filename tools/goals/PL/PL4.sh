# Row PL4: high and normal in alternation on a running VM, many times, under one busy connection.
# The connection has to survive, and everything that is changed on the host has to be as before
# after each time, byte for byte.
row_PL4() {
  local times=100 index load before same=0 granted=0 outcome file=$OUT/pl4-rr.json
  if quick; then times=20; note "quick: 20 times instead of 100"; fi
  stage vm || return 1
  pl4_state >"$OUT/pl4-before.txt"
  note "$(wc -l <"$OUT/pl4-before.txt") files and threads are looked at"
  # The load has to last longer than the changes; its agent ends with it.
  timeout 600 "$BIN/taut" -o json bench rr netns/taut-goal-client rt1 --address 10.85.0.1 --size 1024 --duration $((times * 3 / 2 + 5)) --json "$file" >/dev/null 2>"$OUT/pl4-rr.err" </dev/null & load=$!
  for _ in $(seq 100); do [ "$(pl4_frames)" -lt 2000 ] || break; sleep 0.1; done
  for index in $(seq "$times"); do
    kill -0 $load 2>/dev/null || { note "the connection was gone at change $index"; break; }
    taut vm set rt1 --latency-sensitivity high >/dev/null || return 1
    pl4_until high && granted=$((granted + 1))
    taut vm set rt1 --latency-sensitivity normal >/dev/null || return 1
    pl4_until normal && same=$((same + 1))
  done
  before=$(pl4_frames)
  sleep 0.5
  note "$(($(pl4_frames) - before)) frames in half a second after the last change"
  wait $load && outcome=0 || outcome=$?
  [ "$outcome" = 0 ] || tail -n 3 "$OUT/pl4-rr.err"
  goal PL4-connection "of one connection $(jq -r '.a.median.count // 0' "$file" 2>/dev/null || echo 0) requests were answered, $([ "$outcome" = 0 ] && echo 'and it stood to the end' || echo 'then it was lost')" "none lost" "$outcome == 0"
  goal PL4-host "$granted of $times times its pCPU was its own, $same times everything was as before" "$times, $times" "$granted == $times && $same == $times"
}
pl4_frames() { taut -o json port list | jq '[.[].counters.tx_frames] | add'; }

# pl4_state: prints every file that is changed for exclusive pCPUs with its content, and class and
# pCPUs of every thread of the fabric and the VMs.
pl4_state() {
  local file pid thread
  for file in /proc/irq/default_smp_affinity /proc/irq/*/smp_affinity_list /sys/devices/virtual/workqueue/cpumask /sys/devices/virtual/workqueue/*/cpumask \
    /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us; do
    [ ! -e "$file" ] || echo "$file $(cat "$file" 2>/dev/null)"
  done
  find "$scope" -name cpuset.cpus | sort | while read -r file; do [ ! -e "$file" ] || echo "$file $(cat "$file" 2>/dev/null)"; done
  find /sys/fs/cgroup/cpu /sys/fs/cgroup/memory -path '*taut*' -type d 2>/dev/null | sort
  for pid in $(fabric_pid) $(taut -o json vm list | jq '.[].status.pid'); do
    # Threads are printed without their numbers, because threads of QEMU's pools come and go.
    for thread in /proc/"$pid"/task/*; do
      [ -e "$thread/stat" ] && echo "$pid $(cat "$thread/comm" 2>/dev/null) $(sed 's/.*) //' "$thread/stat" 2>/dev/null | awk '{print $38, $39}') $(grep Cpus_allowed_list "$thread/status" 2>/dev/null | cut -f 2)"
    done | sort | uniq
  done
}
# pl4_until high|normal: waits for that state, for five seconds at most.
pl4_until() {
  for _ in $(seq 100); do
    case $1 in
      high) [ "$(taut -o json vm show rt1 | jq -r '.status.latency.cpus | length')" != 1 ] || return 0 ;;
      normal) if pl4_state >"$lab/pl4-now.txt" && cmp -s "$OUT/pl4-before.txt" "$lab/pl4-now.txt"; then return 0; fi ;;
    esac
    sleep 0.05
  done
  [ "$1" = high ] || diff "$OUT/pl4-before.txt" "$lab/pl4-now.txt" | head -n 5
  return 1
}
