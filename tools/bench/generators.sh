# Generators: generate_NAME SWITCH MODE SIZE [OPTIONS…] prints a JSON object for each of
# $rig_repeats repeats, with the fields of `taut bench switch -o json`. MODE is one-way, both-ways
# or traversal.

# taut's own; OPTIONS are those of `taut bench switch`. $rig_generator may name another build's.
generate_taut() {
  local switch=$1 mode=$2 size=$3 settle=${1}_settle
  shift 3
  # shellcheck disable=SC2046
  preferred 120 "${rig_generator:-$BIN/taut}" -o json bench switch $("${switch}_sockets") --mode "$mode" --size "$size" --repeat "$rig_repeats" --duration "$rig_seconds" \
    --settle "${!settle:-0.3}" --cpu 1 --probe 0 --huge-pages "$@" | jq -c '(del(.repeats)) + .repeats[]'
}

# A light generator that was not tuned for taut. It does not touch payload (TOUCH is 0).
generate_lgen() {
  local switch=$1 mode=$2 size=$3 before after text
  [ -x "$rig/lgen" ] || gcc -O3 -march=native "$(rivals_folder)/lgen.c" -o "$rig/lgen"
  local -A names=([one-way]=tput [both-ways]=bidi [traversal]=rtt)
  for _ in $(seq "$rig_repeats"); do
    before=$(placement "$switch")
    # With QUICK set it does not wait for OVS's flows to settle.
    # shellcheck disable=SC2046
    text=$(if [ "$switch" = ovs_normal ]; then unset QUICK; else export QUICK=1; fi
      preferred 30 "$rig/lgen" $("${switch}_sockets") "${names[$mode]}" "$size" "$rig_seconds" 256 0)
    after=$(placement "$switch")
    foreign "$mode" "$size" "$before" "$after" "$text" false || return 1
  done
}

# DPDK's virtio-user, which ends at about 21 Mpps. OPTIONS may be `packed`.
generate_vgen() {
  local switch=$1 mode=$2 size=$3 packed= before after text
  [ "${4:-}" != packed ] || packed=,packed_vq=1
  # shellcheck disable=SC2046
  [ -x "$rig/vgen" ] || gcc -O3 -march=native $(pkg-config --cflags libdpdk) "$(rivals_folder)/vgen.c" -o "$rig/vgen" $(pkg-config --libs libdpdk)
  local -A names=([one-way]=tput [both-ways]=bidi [traversal]=rtt)
  local sockets vdevs
  read -r -a sockets <<<"$("${switch}_sockets")"
  for _ in $(seq "$rig_repeats"); do
    before=$(placement "$switch")
    vdevs="--vdev net_virtio_user0,path=${sockets[0]},queues=1,queue_size=256,mac=02:11:00:00:00:00$packed
      --vdev net_virtio_user1,path=${sockets[1]},queues=1,queue_size=256,mac=02:11:00:00:00:01$packed"
    ! declare -F "${switch}_vdevs" >/dev/null || vdevs=$("${switch}_vdevs")
    # shellcheck disable=SC2086
    text=$(preferred 60 "$rig/vgen" -l 1 --no-pci --no-telemetry --log-level=3 --file-prefix=taut-rig-vgen -m 256 --single-file-segments \
      --huge-dir "$rig/huge" $vdevs -- "${names[$mode]}" "$size" "$rig_seconds" 256 2>&1)
    after=$(placement "$switch")
    foreign "$mode" "$size" "$before" "$after" "$text" "$([ -n "$packed" ] && echo true || echo false)" || return 1
  done
}

# placement SWITCH: prints the median round trip of a cache line between the cores, in ns. The
# switch is stopped meanwhile: a polling one would take the probe's turns on its core, and the probe
# would measure milliseconds.
placement() {
  rig_signal STOP "$1"
  "$BIN/taut" -o json bench placement 0 1 --duration 0.1 | jq .median
  rig_signal CONT "$1"
}

# foreign MODE SIZE BEFORE AFTER TEXT PACKED: converts the figures that the other generators print.
foreign() {
  local number='[0-9.]*'
  if [ "$1" = traversal ]; then
    sed -n "s/^RTT.* n=\($number\) lost=\($number\).* p50=\($number\) p90=\($number\) p99=\($number\) p99\.9=\($number\).*/{\"count\":\1,\"lost\":\2,\"p50_ns\":\3,\"p90_ns\":\4,\"p99_ns\":\5,\"p99_9_ns\":\6}/p" <<<"$5" \
      | jq -c --argjson size "$2" --argjson probe "[$3,$4]" --argjson packed "$6" '{mode: "traversal", $size, $packed, probe_ns: $probe, traversal: .}'
  else
    sed -n "s/^TPUT.* tx=\($number\) rx=\($number\) Mpps loss=\(-*$number\)%.*/{\"sent_mpps\":\1,\"mpps\":\2,\"loss_percent\":\3}/p" <<<"$5" \
      | jq -c --arg mode "$1" --argjson size "$2" --argjson probe "[$3,$4]" --argjson packed "$6" '{$mode, $size, $packed, probe_ns: $probe} + .'
  fi | grep . || { echo "$5" >&2; return 1; }
}
