# Row PL6: a VM that stays in its firmware under `-accel kvm`, also where KVM runs no Linux: what it
# was promised is observed from outside. The VM asks for KVM explicitly (accelerator = "kvm"),
# because the probe of such a host chooses emulation.
row_PL6() {
  local pid cpu tid locked names=() seen=0 before after
  [ -e /dev/kvm ] || { goal PL6 "there is no /dev/kvm" "a KVM" "0"; return; }
  # The whole machine makes room for the VM's pCPU while this row runs, and no longer.
  before=$(pl6_host)
  start_daemon || return 1
  truncate -s 1M "$lab/blank.img"
  cat >"$lab/firmware.toml" <<TOML
accelerator = "kvm"
memory = "64MiB"
memory_reservation = "full"
latency_sensitivity = "high"
[cpu]
reservation = "full"
[halt]
desched = false
spin = true
[disk]
path = "$lab/blank.img"
TOML
  taut vm create -f "$lab/firmware.toml" --name firmware >/dev/null && taut vm start firmware >/dev/null || return 1
  for _ in $(seq 100); do [ "$(taut -o json vm show firmware | jq -r .status.latency.state)" = granted ] && break; sleep 0.1; done
  pid=$(taut -o json vm show firmware | jq .status.pid) cpu=$(taut -o json vm show firmware | jq '.status.latency.cpus[0]')
  taut vm explain firmware >"$OUT/pl6-explain.txt"
  tr '\0' ' ' <"/proc/$pid/cmdline" >"$OUT/pl6-command-line.txt"
  pl6_sees "cpu-pm and locked memory in its command line" grep -q 'mem-lock=on,cpu-pm=on' "$OUT/pl6-command-line.txt"
  pl6_sees "the accelerator" grep -q -- '-accel kvm -cpu host.*kvm-hint-dedicated=on,kvm-poll-control=on' "$OUT/pl6-command-line.txt"
  locked=$(awk '/^VmLck/ {print $2}' "/proc/$pid/status")
  pl6_sees "$locked KiB locked, of 65536 of the guest" [ "$locked" -ge 65536 ]
  for tid in /proc/"$pid"/task/*; do [ "$(cat "$tid/comm" 2>/dev/null)" != "CPU 0/KVM" ] || names+=("$(awk '/^Cpus_allowed_list/ {print $2}' "$tid/status")"); done
  pl6_sees "its vCPU is bound to pCPU ${names[*]} (of the plan: $cpu)" [ "${names[*]}" = "$cpu" ]
  pl6_others "$pid" "$cpu" >"$OUT/pl6-others.txt"
  pl6_sees "$(wc -l <"$OUT/pl6-others.txt") other tasks of users may run on pCPU $cpu" [ ! -s "$OUT/pl6-others.txt" ]
  pl6_sees "no wake-up latency is tolerated there" [ "$(cat "/sys/devices/system/cpu/cpu$cpu/power/pm_qos_resume_latency_us" 2>/dev/null || echo n/a)" = n/a ]
  taut vm stop --force firmware >/dev/null
  stop_daemon
  after=$(pl6_host)
  pl6_sees "afterwards the host is as before" [ "$before" = "$after" ]
  goal PL6 "$seen of 7 promises seen from outside" "7" "$seen == 7"
}

# pl6_sees WHAT COMMAND…: counts a fact that the command confirms.
pl6_sees() {
  local what=$1
  shift
  if "$@"; then seen=$((seen + 1)) && note "seen: $what"; else note "NOT seen: $what"; fi
}

# pl6_others PID CPU: prints tasks that may run there, without the VM's vCPU and without bound
# kernel threads.
pl6_others() {
  local task pid
  for task in /proc/[0-9]*/task/[0-9]*; do
    pid=${task#/proc/} pid=${pid%%/*}
    [ -s "/proc/$pid/cmdline" ] || continue
    awk -v cpu="$2" -v name="$pid: $(cat "$task/comm" 2>/dev/null)" '/^Cpus_allowed_list/ {
      count = split($2, parts, ",")
      for (part = 1; part <= count; part++) { n = split(parts[part], range, "-"); if (range[1] <= cpu && cpu <= range[n]) print name }
    }' "$task/status" 2>/dev/null
  done | grep -v "^$1: CPU 0/KVM" || true
}

pl6_host() { cat /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us /sys/devices/virtual/workqueue/cpumask 2>/dev/null | sha256sum; }
