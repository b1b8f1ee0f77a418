# Goals of VMCI sockets. One row a file in tools/goals/VC-G/, named after it; shared functions are
# here. The rival, rust-vmm's vhost-device-vsock, is measured where it is installed (`cargo install
# vhost-device-vsock --locked`; on the PATH, or named by TAUT_VHOST_DEVICE_VSOCK); rows say when it
# is not.
#
# A row is a function `row_ID` that prints what it did with `note` and ends with one or more `goal
# ID FIGURE BOUND CONDITION`. It shortens itself when `quick` says so, and notes that. All rows
# together then take under 6 minutes.
for row in "$here"/tools/goals/VC-G/*.sh; do
  [ -e "$row" ] && . "$row"
done
unset row
. "$here/tools/bench/rig.sh"

# Each row has a daemon of its own, if it needs one.
after_row() {
  end_rivals
  stop_daemon
}

# vc_daemon [OPTIONS…]: starts a tautd whose processes have priority on this machine, and makes a
# port group for TCP.
vc_daemon() {
  start_daemon "$@" || return 1
  prefer "$daemon"
  prefer "$(fabric_pid)"
  taut vswitch create sw
  taut portgroup create lan --vswitch sw
}

# vc_micro NAME IP [DOMAIN]: starts a microguest with a VMCI device. TAUT_MICRO_VMCI in the daemon's
# environment configures the device.
vc_micro() {
  printf 'kind = "micro"\nmemory = "64MiB"\n[[nic]]\nportgroup = "lan"\nip = "%s/24"\n[vmci]\ndomains = ["%s"]\n' "$2" "${3:-goals}" >"$lab/$1.toml"
  taut vm create -f "$lab/$1.toml" --name "$1" >/dev/null && taut vm start --wait "$1" && prefer "$(pid_of "$1")"
}

# vc_vm NAME IMAGE IP [DOMAIN]: boots a VM with a VMCI device directly.
vc_vm() {
  printf 'memory = "192MiB"\n[boot]\nkernel = "%s"\ninitrd = "%s"\n[[nic]]\nportgroup = "lan"\nip = "%s/24"\n[vmci]\ndomains = ["%s"]\n' \
    "$IMAGES/$2/vmlinuz" "$IMAGES/$2/initrd" "$3" "${4:-goals}" >"$lab/$1.toml"
  taut vm create -f "$lab/$1.toml" --name "$1" >/dev/null && taut vm start --wait "$1"
}

pid_of() { taut -o json vm show "$1" | jq .status.pid; }
agent_of() { taut -o json vm show "$1" | jq -r .status.agent_socket; }
cid_of() { taut -o json vm show "$1" | jq .status.vmci.cid; }

# vc_rival: prints the path of vhost-device-vsock.
vc_rival() {
  local program=${TAUT_VHOST_DEVICE_VSOCK:-$(type -P vhost-device-vsock)}
  [ -x "$program" ] || { note "vhost-device-vsock is not installed: nothing to compare with" >&2; return 1; }
  echo "$program"
}

# vc_rival_devices NAME NAME2: has vhost-device-vsock serve two devices, on $lab/twins/NAME.vmci,
# with context IDs 3 and 4.
vc_rival_devices() {
  local rival end
  rival=$(vc_rival) || return 1
  mkdir -p "$lab/twins"
  setsid "$rival" --vm "guest-cid=3,socket=$lab/twins/$1.vmci,uds-path=$lab/twins/$1.host" \
    --vm "guest-cid=4,socket=$lab/twins/$2.vmci,uds-path=$lab/twins/$2.host" >"$lab/twins/rival.log" 2>&1 &
  echo $! >"$lab/twins/rival.pid"
  prefer "$!"
  for end in "$1" "$2"; do for _ in $(seq 100); do [ -S "$lab/twins/$end.vmci" ] && break; sleep 0.02; done; done
}

# vc_rival_micros OPTIONS: starts microguests ra and rb on vhost-device-vsock; their agents are
# agent:$lab/twins/ra.agent and rb.agent.
vc_rival_micros() {
  local end
  vc_rival_devices ra rb || return 1
  for end in ra rb; do
    setsid "$BIN/taut-micro" --name "$end" --agent-socket "$lab/twins/$end.agent" --vmci "connect=$lab/twins/$end.vmci,$1" >"$lab/twins/$end.log" 2>&1 &
    echo $! >"$lab/twins/$end.pid"
    prefer "$!"
    for _ in $(seq 100); do [ -S "$lab/twins/$end.agent" ] && break; sleep 0.02; done
  done
  # Their devices have a link as soon as they know their context IDs.
  for _ in $(seq 100); do
    taut bench vsock "agent:$lab/twins/ra.agent" "agent:$lab/twins/rb.agent" --mode rr --message 1 --socket-size 64KiB --duration 0.1 >/dev/null 2>&1 && return
    sleep 0.05
  done
  echo "microguests on vhost-device-vsock do not answer" >&2
  return 1
}

# end_rivals: ends everything that runs in $lab/twins. Replaces lab.sh's function of this name.
end_rivals() {
  local file
  for file in "$lab"/twins/*.pid "$lab"/twins/*/pid; do
    [ -e "$file" ] || continue
    kill "$(cat "$file")" 2>/dev/null
    rm -f "$file"
  done
  rm -rf "$lab/twins"
}

# cell FILE TRANSPORT SOCKET MESSAGE SESSIONS FIELD: prints a median from results of `taut bench
# vsock`.
cell() {
  jq --arg transport "$2" --argjson socket "$3" --argjson message "$4" --argjson sessions "$5" \
    ".cells[] | select(.transport == \$transport and .socket == \$socket and .message == \$message and .sessions == \$sessions) | .median.$6" "$1"
}

# gbit MBIT: converts Mbit/s to Gbit/s.
gbit() { awk -v rate="${1:-0}" 'BEGIN{printf "%.2f", rate / 1000}'; }
