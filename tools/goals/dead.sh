# What labs leave behind whose owner was killed (SIGKILL, or with its terminal), cleared away by the next one that starts. Sourced by lab.sh.

# began PID: when the process began, in the kernel's ticks; nothing if there is none, or only what its parent has not buried yet.
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }

# owes COMMAND: what is to be done, besides ending processes, if this script does not come to it. What was noted last is done first.
owes() { printf '%s\n' "$1" >>"$lab/owed"; }

# end_daemon_of LAB: its daemon ends all that it runs and gives back what it has changed, or another one does, if that has died as well.
end_daemon_of() {
  local -x TAUT_SOCKET=$1/run/tautd.sock
  if [ -e "$1/state/host-changes.json" ] && ! taut daemon show; then
    setsid "$BIN/tautd" --state-dir "$1/state" --run-dir "$1/run" ${scope:+--cpuset "$scope"} &
    for _ in $(seq 200); do taut daemon show && break; sleep 0.05; done
  fi
  taut shutdown --everything
}

# end_processes_of LAB: whoever has its socket's path in the environment, as all have that it started, or a path of its folder in the command line.
end_processes_of() {
  local all pid
  all=$(grep -lsF "$1/" /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -u | grep -vxF -e $$ -e $BASHPID || true)
  for pid in $all; do kill -9 "$pid" 2>/dev/null || true; done
  # What they held, such as huge pages, is free a moment later.
  for pid in $all; do for _ in $(seq 100); do [ -e "/proc/$pid/exe" ] || break; sleep 0.05; done; done
}

# clear_away LAB OWNER
clear_away() {
  local scope=/sys/fs/cgroup/cpuset/taut-goal-$2 done=() command said
  [ -d "$scope" ] || scope=
  end_daemon_of "$1" >/dev/null 2>&1 </dev/null || true
  end_processes_of "$1"
  leave_scope
  while read -r command; do
    if (eval "$command") >/dev/null 2>&1 </dev/null; then done+=("$command"); fi
  done < <(tac "$1/owed" 2>/dev/null)
  # Never into what is mounted there still.
  rm -rf --one-file-system "$1"
  said=$(printf '; %s' "${done[@]}")
  echo "cleared away $1, whose owner (process $2) is gone${done:+: ${said#; }}" >&2
}

# clear_away_the_dead: every lab of this user whose owner is gone: its name tells the owner's number, and when that began, for numbers come round.
clear_away_the_dead() {
  local other owner start
  for other in /tmp/taut-lab.*.*.*; do
    if [ ! -d "$other" ] || [ -L "$other" ] || [ ! -O "$other" ]; then continue; fi
    IFS=. read -r _ owner start _ <<<"$other"
    [ "$(began "$owner")" = "$start" ] || clear_away "$other" "$owner"
  done
}
