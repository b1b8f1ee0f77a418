# Goals of VMCI sockets. One row a file in tools/goals/VC-G/, named after it. The rival, rust-vmm's vhost-device-vsock, is measured where it is installed
# (`cargo install vhost-device-vsock --locked`, found on the PATH or named by TAUT_VHOST_DEVICE_VSOCK); rows say when it is not.
for row in "$here"/tools/goals/VC-G/*.sh; do . "$row"; done
unset row

after_row() { stop_daemon; }

# How long one measurement takes, and how many there are of each.
vmci_duration() { if quick; then echo 1; else echo 5; fi; }
vmci_repeats() { if quick; then echo 2; else echo 5; fi; }

# vmci_micros NAME…: microguests with VMCI devices in one domain, and cards on one port group.
vmci_micros() {
  local name number=0
  start_daemon
  taut vswitch create sw && taut portgroup create lan --vswitch sw
  for name in "$@"; do
    number=$((number + 1))
    printf 'kind = "micro"\nmemory = "64MiB"\n[vmci]\ndomains = ["goal"]\n[[nic]]\nportgroup = "lan"\nip = "10.81.0.%d/24"\n' $number >"$lab/$name.toml"
    taut vm create -f "$lab/$name.toml" --name "$name" >/dev/null
    taut vm start --wait "$name"
  done
}

# vmci_bench OUT FROM TO OPTIONS…: `taut bench vsock`; its table is printed.
vmci_bench() {
  local out=$1 from=$2 to=$3
  shift 3
  taut bench vsock "$from" "$to" --duration "$(vmci_duration)" --repeat "$(vmci_repeats)" --json "$out" "$@" | sed -n '/^OVER/,/^$/p'
}

# vmci_cell FILE TRANSPORT SESSIONS MESSAGE SOCKET FIELD: of the median.
vmci_cell() {
  jq -r --arg transport "$2" --argjson sessions "$3" --argjson message "$4" --argjson socket "$5" \
    ".cells[] | select(.transport == \$transport and .sessions == \$sessions and .message == \$message and .socket == \$socket) | .median.$6 // empty
      | . * 100 | round / 100" "$1"
}

# vmci_rival: two more microguests, r1 and r2, behind vhost-device-vsock; end points $rival_from and $rival_to. Its packets between VMs have to fit one
# receive buffer, so they are of 4000 bytes at most: with longer ones nothing arrives.
vmci_rival() {
  local program=${TAUT_VHOST_DEVICE_VSOCK:-$(command -v vhost-device-vsock)} dir=$lab/rival name cid=40 vms=()
  [ -x "$program" ] || { note "vhost-device-vsock is not installed: nothing to compare with"; return 1; }
  mkdir -p "$dir"
  for name in r1 r2; do
    cid=$((cid + 1))
    vms+=(--vm "guest-cid=$cid,uds-path=$dir/$name.uds,socket=$dir/$name.sock,tx-buffer-size=65536,queue-size=1024,groups=goal")
  done
  "$program" "${vms[@]}" >"$dir/log" 2>&1 &
  rival_pids=$!
  sleep 0.5
  for name in r1 r2; do
    "$BIN/taut-micro" --name $name --agent-socket "$dir/$name.agent" --vmci "connect=$dir/$name.sock,packet=4000" >>"$dir/log" 2>&1 &
    rival_pids+=" $!"
  done
  sleep 0.5
  rival_from=agent:$dir/r1.agent rival_to=agent:$dir/r2.agent
}
vmci_rival_ends() { kill $rival_pids 2>/dev/null; wait $rival_pids 2>/dev/null || true; }
