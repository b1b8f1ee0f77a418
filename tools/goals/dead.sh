# Clean-up after labs whose owner was killed (SIGKILL, or with its terminal): the next lab that
# starts does it. Sourced by lab.sh.

# began PID: prints the start time of a process in clock ticks; nothing for a process that is gone
# or a zombie.
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }

# owes COMMAND: records a command for the clean-up, should this script be killed. The last recorded
# one runs first.
owes() { printf '%s\n' "$1" >>"$lab/owed"; }

# end_daemon_of LAB: has the lab's daemon end everything and restore the host. If that daemon is
# dead, starts another one for it.
end_daemon_of() {
  local -x TAUT_SOCKET=$1/run/tautd.sock
  if [ -e "$1/state/host-changes.json" ] && ! taut daemon show; then
    setsid "$BIN/tautd" --state-dir "$1/state" --run-dir "$1/run" ${scope:+--cpuset "$scope"} &
    for _ in $(seq 200); do taut daemon show && break; sleep 0.05; done
  fi
  taut shutdown --everything
}

# end_processes_of LAB: kills processes that have the lab's socket in their environment, as all that
# it started have, or a path of its folder in their command line.
end_processes_of() {
  local all pid
  all=$(grep -lsF "$1/" /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -u | grep -vxF -e $$ -e $BASHPID || true)
  for pid in $all; do kill -9 "$pid" 2>/dev/null || true; done
  # Huge pages and the like are free only a moment after the kill.
  for pid in $all; do for _ in $(seq 100); do [ -e "/proc/$pid/exe" ] || break; sleep 0.05; done; done
}

# clear_away LAB OWNER: removes a dead lab.
clear_away() {
  local scope=/sys/fs/cgroup/cpuset/taut-goal-$2 done=() command said
  [ -d "$scope" ] || scope=
  end_daemon_of "$1" >/dev/null 2>&1 </dev/null || true
  end_processes_of "$1"
  leave_scope
  while read -r command; do
    if (eval "$command") >/dev/null 2>&1 </dev/null; then done+=("$command"); fi
  done < <(tac "$1/owed" 2>/dev/null)
  # File systems that are still mounted there are left alone.
  rm -rf --one-file-system "$1"
  said=$(printf '; %s' "${done[@]}")
  echo "cleared away $1, whose owner (process $2) is gone${done:+: ${said#; }}" >&2
}

# clear_away_the_dead: removes every lab of this user whose owner is gone. The lab's name has the
# owner's number and its start time, because numbers are used again.
clear_away_the_dead() {
  local other owner start
  for other in /tmp/taut-lab.*.*.*; do
    if [ ! -d "$other" ] || [ -L "$other" ] || [ ! -O "$other" ]; then continue; fi
    IFS=. read -r _ owner start _ <<<"$other"
    [ "$(began "$owner")" = "$start" ] || clear_away "$other" "$owner"
  done
}
