# Lab for goals: one tautd with directories of its own, taken down when the script ends.
. "$here/tools/goals/dead.sh"
lab=$(mktemp -d "/tmp/taut-lab.$$.$(began $$).XXXXXX")
export TAUT_SOCKET=$lab/run/tautd.sock
daemon=
# Options that start_daemon adds.
daemon_options=()

taut() { "$BIN/taut" "$@"; }
fabric_pid() { taut -o json daemon show | jq -r '.fabric_pid // empty'; }

# ratio A B: prints A / B with two decimals.
ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN{printf "%.2f", (b > 0 ? a / b : 0)}'; }

# start_daemon [OPTIONS…]: starts the lab's tautd.
start_daemon() {
  setsid "$BIN/tautd" --state-dir "$lab/state" --run-dir "$lab/run" "${daemon_options[@]}" "$@" 2>>"$lab/tautd.log" &
  daemon=$!
  # Waits for the daemon's KVM probe, which keeps a core busy for seconds.
  for _ in $(seq 200); do taut daemon show >/dev/null 2>&1 && taut host show >/dev/null && return; sleep 0.02; done
  echo "tautd does not answer:" >&2
  tail "$lab/tautd.log" >&2
  return 1
}

# stop_daemon: ends the daemon with all that it runs, and removes its state.
stop_daemon() {
  [ -n "$daemon" ] || return 0
  taut shutdown --everything >/dev/null 2>&1 || true
  wait "$daemon" 2>/dev/null || true
  daemon=
  rm -rf "$lab/state" "$lab/run"
}

end_lab() {
  local status=$?
  trap - EXIT INT TERM
  stop_daemon
  leave_scope
  ! declare -F rig_close >/dev/null || rig_close
  ! declare -F end_stage >/dev/null || end_stage
  declare -F end_rivals >/dev/null && end_rivals
  rm -rf "$lab"
  exit $status
}
# enter_scope: moves this script, and whatever it starts, into a cpuset of its own. Only that cpuset
# makes room for exclusive pCPUs; other programs on this machine stay where they are. Fails on a
# host with one pCPU or without cpusets of cgroup v1.
scope=
enter_scope() {
  local parent=/sys/fs/cgroup/cpuset file
  [ "$(nproc)" -ge 2 ] && [ -e $parent/cpuset.cpus ] || { echo "it takes two pCPUs and cpusets of cgroup v1" >&2; return 1; }
  scope=$parent/taut-goal-$$
  mkdir "$scope"
  for file in cpuset.cpus cpuset.mems; do cat "$parent/$file" >"$scope/$file"; done
  echo $$ >"$scope/cgroup.procs"
  daemon_options=(--cpuset "$scope")
}
# leave_scope: moves everything out of the cpuset and removes it.
leave_scope() {
  local folder task
  [ -n "$scope" ] || return 0
  for folder in "$scope"/*/ "$scope"; do
    for _ in $(seq 50); do
      for task in $(cat "$folder/tasks" 2>/dev/null); do echo "$task" 2>/dev/null >/sys/fs/cgroup/cpuset/tasks || true; done
      rmdir "$folder" 2>/dev/null && break
      [ -e "$folder" ] || break
      sleep 0.02
    done
  done
  scope= daemon_options=()
}
trap end_lab EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
clear_away_the_dead

# vm NAME IMAGE IP: boots a VM directly and waits for its agent.
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

# micro NAME IP: starts a microguest.
micro() {
  printf 'kind = "micro"\nmemory = "64MiB"\n[[nic]]\nportgroup = "lan"\nip = "%s/24"\n' "$2" >"$lab/$1.toml"
  taut vm create -f "$lab/$1.toml" --name "$1" >/dev/null
  taut vm start --wait "$1"
}

# The images with the oldest and the newest kernel.
old_image() { [ -e "$IMAGES/debian-6.1/info.json" ] && echo debian-6.1 || echo debian-6.12; }
new_image() { [ -e "$IMAGES/debian-6.12/info.json" ] && echo debian-6.12 || echo debian-6.1; }

# Boots two Debian guests on the port group lan: alpha with the oldest kernel, beta with the newest.
two_guests() {
  [ -n "$daemon" ] || start_daemon
  taut vm show alpha >/dev/null 2>&1 && return
  taut vswitch create sw
  taut portgroup create lan --vswitch sw
  vm alpha "$(old_image)" 10.80.0.1
  vm beta "$(new_image)" 10.80.0.2
}

# start_twin NAME FOLDER REWRITE: runs the command line of a running VM once more, with its files in
# FOLDER (its agent's socket is FOLDER/agent.sock). REWRITE is a function that may change $word. If
# it fails, the word and the option before it are left out.
start_twin() {
  local name=$1 twin=$2 rewrite=$3 pid word words args=()
  pid=$(taut -o json vm show "$name" | jq -r .status.pid)
  mkdir -p "$twin"
  mapfile -d '' -t words <"/proc/$pid/cmdline"
  for word in "${words[@]}"; do
    word=${word//$lab\/run\/vms\/$name/$twin}
    if "$rewrite"; then args+=("$word"); else unset 'args[-1]'; fi
  done
  setsid "${args[@]}" >"$twin/qemu.log" 2>&1 &
  echo $! >"$twin/pid"
}

# answering FOLDER NAME NAME2: waits until two twins have booted; no daemon knows that.
answering() {
  local attempt
  for attempt in $(seq 20); do
    taut bench rr "agent:$1/$2/agent.sock" "agent:$1/$3/agent.sock" --duration 0.1 >/dev/null 2>&1 && return
    sleep 1
  done
  echo "the twins of $2 and $3 do not answer" >&2
  return 1
}

# bridge_vms NAME…: starts, for each of these running VMs, a twin on a TAP of a Linux bridge instead
# of the vSwitch, in $lab/twins/NAME.
bridge=taut-goal-br
bridge_vms() {
  owes "ip link del $bridge"
  ip link add "$bridge" type bridge
  ip link set "$bridge" up
  local name
  on_tap() {
    case $word in
      socket,id=nic0,*) return 1 ;;
      vhost-user,id=net0,*) word="tap,id=net0,ifname=tgt-$name,script=no,downscript=no" ;;
    esac
  }
  for name in "$@"; do
    ip tuntap add "tgt-$name" mode tap vnet_hdr
    ip link set "tgt-$name" master "$bridge" up
    start_twin "$name" "$lab/twins/$name" on_tap
  done
}
end_rivals() {
  local file
  for file in "$lab"/twins/*/pid "$lab"/polled/*/pid; do
    [ -e "$file" ] || continue
    kill "$(cat "$file")" 2>/dev/null && ip link del "tgt-$(basename "$(dirname "$file")")" 2>/dev/null
    rm "$file"
  done
  # A bridge of another lab may have the same name.
  ! grep -qsxF "ip link del $bridge" "$lab/owed" || ip link del "$bridge" 2>/dev/null || true
}
