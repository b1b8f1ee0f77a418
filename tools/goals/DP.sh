# Goals of the data plane: the switch on core 0, the load on core 1. One row a file in
# tools/goals/DP/, named after it; tools/bench/ has what rows share (rivals, generators, huge
# pages).
#
# A row is a function `row_ID` that prints what it did with `note` and ends with one or more `goal
# ID FIGURE BOUND CONDITION`. It shortens itself when `quick` says so, and notes that. All rows
# together then take under 6 minutes.
. "$here/tools/bench/switches.sh"
for row in "$here"/tools/goals/DP/*.sh; do
  [ -e "$row" ] && . "$row"
done
unset row

# Each row has a daemon of its own, if it needs one.
after_row() { stop_daemon; }

# Opens the rig once, with the number and length of samples that this run can afford.
dp_rig() {
  [ -z "$rig" ] || return 0
  "$here/tools/setup.sh" rivals
  rig_open
  dp_least=9 dp_rounds=6
  if quick; then
    rig_repeats=2 rig_seconds=0.3 dp_least=1 dp_rounds=3
    note "quick: 2 samples of 0.3 s a round, until there is one of each switch in the same state, instead of 3 of 0.5 s until there are 9"
  fi
}

# Prints the generator of the rows that are defined for lgen: lgen if it is there, else taut's own.
dp_light() { [ -e "$(rivals_folder)/lgen.c" ] && echo lgen || echo taut; }
