# Goals of latency sensitivity, best practices and dense mode. One row a file in tools/goals/PL/, named after it; what rows share is here.
for row in "$here"/tools/goals/PL/*.sh; do
  [ -e "$row" ] && . "$row"
done
unset row

# Each row has a daemon of its own, if it needs one.
after_row() {
  end_rivals
  stop_daemon
}
