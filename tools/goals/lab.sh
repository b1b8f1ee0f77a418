# A laboratory for goals: one tautd with directories of its own, taken down when the script ends.
lab=$(mktemp -d /tmp/taut-lab.XXXXXX)
export TAUT_SOCKET=$lab/run/tautd.sock
daemon=

taut() { "$BIN/taut" "$@"; }
fabric_pid() { taut -o json daemon show | jq -r '.fabric_pid // empty'; }

# start_daemon [OPTIONS…]: a tautd of this laboratory.
start_daemon() {
  setsid "$BIN/tautd" --state-dir "$lab/state" --run-dir "$lab/run" "$@" 2>>"$lab/tautd.log" &
  daemon=$!
  for _ in $(seq 200); do taut daemon show >/dev/null 2>&1 && return; sleep 0.02; done
  echo "tautd does not answer:" >&2
  tail "$lab/tautd.log" >&2
  return 1
}

end_lab() {
  local status=$?
  trap - EXIT INT TERM
  [ -z "$daemon" ] || { taut shutdown --everything >/dev/null 2>&1 || true; wait "$daemon" 2>/dev/null || true; }
  ! declare -F rig_close >/dev/null || rig_close
  declare -F end_rivals >/dev/null && end_rivals
  rm -rf "$lab"
  exit $status
}
trap end_lab EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# vm NAME IMAGE IP: a directly booted VM, running and answering.
vm() {
  cat >"$lab/$1.toml" <<TOML
memory = "128MiB"
[boot]
kernel = "$IMAGES/$2/vmlinuz"
initrd = "$IMAGES/$2/initrd"
[[nic]]
portgroup = "lan"
ip = "$3/24"
TOML
  taut vm create -f "$lab/$1.toml" --name "$1" >/dev/null
  taut vm start --wait "$1"
}

# micro NAME IP: a microguest.
micro() {
  printf 'kind = "micro"\nmemory = "64MiB"\n[[nic]]\nportgroup = "lan"\nip = "%s/24"\n' "$2" >"$lab/$1.toml"
  taut vm create -f "$lab/$1.toml" --name "$1" >/dev/null
  taut vm start --wait "$1"
}

# The two kernels to compare with: the oldest and the newest image there is.
old_image() { [ -e "$IMAGES/debian-6.1/info.json" ] && echo debian-6.1 || echo debian-6.12; }
new_image() { [ -e "$IMAGES/debian-6.12/info.json" ] && echo debian-6.12 || echo debian-6.1; }

# bridge_vms: for each running VM named, a twin of the same command line on a TAP of a Linux bridge instead of the
# vSwitch. Its agent's socket is $lab/twins/NAME/agent.sock.
bridge=taut-goal-br
bridge_vms() {
  ip link add "$bridge" type bridge
  ip link set "$bridge" up
  local name pid twin
  for name in "$@"; do
    pid=$(taut -o json vm show "$name" | jq -r .status.pid)
    twin=$lab/twins/$name
    mkdir -p "$twin"
    ip tuntap add "tgt-$name" mode tap vnet_hdr
    ip link set "tgt-$name" master "$bridge" up
    mapfile -d '' -t words <"/proc/$pid/cmdline"
    local args=() skip= word
    for word in "${words[@]}"; do
      word=${word//$lab\/run\/vms\/$name/$twin}
      case $word in
        socket,id=nic0,*) unset 'args[-1]'; continue ;;
        vhost-user,id=net0,*) word="tap,id=net0,ifname=tgt-$name,script=no,downscript=no" ;;
      esac
      args+=("$word")
    done
    setsid "${args[@]}" >"$twin/qemu.log" 2>&1 &
    echo $! >"$twin/pid"
  done
}
end_rivals() {
  local file
  for file in "$lab"/twins/*/pid; do
    [ -e "$file" ] && kill "$(cat "$file")" 2>/dev/null && ip link del "tgt-$(basename "$(dirname "$file")")" 2>/dev/null
  done
  ip link del "$bridge" 2>/dev/null || true
}
