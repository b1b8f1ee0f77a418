# Row VC-G1: one session of 64 KiB messages between microguests, with 16 receive buffers of 64 KiB
# (as many as stay in a cache; vhost-device-vsock stalls with smaller ones): beside
# vhost-device-vsock with the same microguests, TCP through the vSwitch, and memcpy. Once with
# programs that write and read every byte; once with programs that leave that to the device, as
# generators of frames do, which shows what the device alone achieves.
row_VC-G1() {
  local rounds=5 seconds=2 round own=$OUT/vc-g1-own.jsonl rival=$OUT/vc-g1-rival.jsonl copy has_rival=
  if quick; then rounds=2 seconds=1; note "quick: 2 rounds of 1 s instead of 5 of 2 s"; fi
  : >"$own" >"$rival"
  for copy in on off; do
    export TAUT_MICRO_VMCI=buffer=65580,rx=16,tx=16,copy=$copy
    vc_daemon && vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 || return 1
    if vc_rival_micros "$TAUT_MICRO_VMCI"; then has_rival=1; fi
    for round in $(seq "$rounds"); do
      g1_sample $copy "$own" a b --against tcp || return 1
      [ -z "$has_rival" ] || g1_sample $copy "$rival" "agent:$lab/twins/ra.agent" "agent:$lab/twins/rb.agent" || return 1
    done
    [ $copy = on ] || g1_share || return 1
    [ $copy = off ] || taut -o json bench raw --duration 1 >"$OUT/vc-g1-raw.json" || return 1
    end_rivals
    stop_daemon
  done
  unset TAUT_MICRO_VMCI
  local vmci tcp other device device_other copied
  vmci=$(g1_median "$own" on vsock) tcp=$(g1_median "$own" on tcp) other=$(g1_median "$rival" on vsock)
  device=$(g1_median "$own" off vsock) device_other=$(g1_median "$rival" off vsock)
  copied=$(g1_memcpy 1048576)
  note "every byte written and read: $vmci Gbit/s, TCP $tcp, vhost-device-vsock $other; left to the device: $device, vhost-device-vsock $device_other"
  note "memcpy on one core: $copied Gbit/s of 1 MiB, which is about what is under way; $(g1_memcpy 65536) of 64 KiB, again and again the same"
  goal VC-G1-rival "device alone $device Gbit/s, vhost-device-vsock $device_other: $(ratio "$device" "$device_other") x" ">= 5 x" "$device_other > 0 && $device >= 5 * $device_other"
  goal VC-G1-rival-copied "written and read by the guests as well $vmci Gbit/s, vhost-device-vsock $other: $(ratio "$vmci" "$other") x" ">= 5 x" "$other > 0 && $vmci >= 5 * $other"
  goal VC-G1-tcp "$vmci Gbit/s, TCP through the vSwitch $tcp: $(ratio "$vmci" "$tcp") x" ">= 3 x" "$vmci >= 3 * $tcp"
  goal VC-G1-memcpy "$device Gbit/s, memcpy $copied: $(ratio "$device" "$copied"); written and read by the guests as well $vmci" ">= 0.50" "$device >= 0.5 * $copied"
}

# g1_share: takes one more sample, and prints how much of a CPU the fabric's thread had: it may
# share two CPUs with two guests.
g1_share() {
  local fabric=/proc/$(fabric_pid)/task
  g1_times >"$OUT/vc-g1-before"
  preferred 120 "$BIN/taut" -o json bench vsock a b --message 64KiB --socket-size 256KiB --duration "$seconds" >"$OUT/vc-g1.json" || return 1
  g1_times | join "$OUT/vc-g1-before" - | awk -v seconds="$seconds" -v cpus="$(nproc)" -v rate="$(gbit "$(jq '.cells[0].median.mbit_s' "$OUT/vc-g1.json")")" '
    {ran = $4 - $2; waited = $5 - $3; if (ran > most) {most = ran; idle = waited}}
    END{printf "  left to the device, once more: %s Gbit/s; the thread that copies ran for %.0f %% of the time and waited for one of %d CPUs for %.0f %%\n", rate, most / seconds / 1e7, cpus, idle / seconds / 1e7}'
}
# g1_times: prints, for each thread of the fabric, the ns that it ran and the ns that it waited for
# a CPU.
g1_times() { local task; for task in "$fabric"/*; do echo "$(basename "$task") $(cut -d ' ' -f 1,2 "$task/schedstat")"; done | sort; }

# g1_sample COPY FILE FROM TO [OPTIONS…]: takes one more sample.
g1_sample() {
  local copy=$1 file=$2
  shift 2
  preferred 120 "$BIN/taut" -o json bench vsock "$@" --message 64KiB --socket-size 256KiB --duration "$seconds" >"$OUT/vc-g1.json" || return 1
  jq -c --arg copy "$copy" '.cells[] | {copy: $copy, transport, mbit_s: .median.mbit_s}' "$OUT/vc-g1.json" >>"$file"
}
g1_median() { gbit "$(jq --arg copy "$2" --arg transport "$3" 'select(.copy == $copy and .transport == $transport).mbit_s' "$1" | median)"; }
g1_memcpy() { jq --argjson size "$1" '[.memcpy[] | select(.size == $size).gbyte_s * 8][0] * 100 | round / 100' "$OUT/vc-g1-raw.json"; }
