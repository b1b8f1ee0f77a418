# Costs of a frame besides time: allocations and system calls of the fabric under full load, counted
# by the kernel (perf); instructions of the rings' device ends (callgrind), because the processor's
# own counters are often not available.

# cost_allocations: prints `FRAMES MALLOCS SYSCALLS`: the frames forwarded in a second of full load,
# and the calls of the allocator and of the kernel in the fabric meanwhile. Needs $rig.
cost_allocations() {
  local libc pid load counted call
  libc=$(ldd "$BIN/taut-fabric" | awk '$1 ~ /^libc\./ {print $3}')
  mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing
  # Removes what an interrupted run left.
  perf probe -q -d 'probe_libc:taut_*' >>"$rig/log" 2>&1 || true
  for call in malloc calloc realloc posix_memalign; do perf probe -q -x "$libc" --add "taut_$call=$call" >>"$rig/log" 2>&1 || return 1; done
  rig_resume taut && taut_prepare || return 1
  pid=$(taut_pids)
  # shellcheck disable=SC2046
  preferred 60 "$BIN/taut" -o json bench switch $(taut_sockets) --duration 3 --cpu 1 --huge-pages >"$rig/sample" 2>>"$rig/log" &
  load=$!
  sleep 1.5
  counted=$(rig_taut -o json port list | jq '[.[].counters.rx_frames] | add')
  perf stat -x , -e 'probe_libc:taut_*' -e raw_syscalls:sys_enter -p "$pid" -- sleep 1 2>"$rig/perf"
  counted=$(($(rig_taut -o json port list | jq '[.[].counters.rx_frames] | add') - counted))
  wait $load || true
  rig_signal STOP taut
  perf probe -q -d 'probe_libc:taut_*' >>"$rig/log" 2>&1 || true
  awk -F , -v frames="$counted" '/taut_/{mallocs += $1} /sys_enter/{calls += $1} END{printf "%d %d %d\n", frames, mallocs, calls}' "$rig/perf"
}

# cost_instructions FORMAT: prints the instructions per 64 B frame in the device ends of two rings
# of that format (split, packed, with `in order` or without), with copy and checks, without the
# switch.
cost_instructions() {
  local example=$BIN/examples/forward text
  text=$(valgrind --tool=callgrind --toggle-collect='forward::forward' --callgrind-out-file=/dev/null "$example" 64 3 "$1" 2>&1) || return 1
  awk -v frames="$(sed -n 's/ frames of each$//p' <<<"$text")" -v collected="$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' <<<"$text")" \
    'BEGIN{printf "%.0f\n", collected / frames}'
}
