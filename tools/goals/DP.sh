# Goals of the data plane: the switch on core 0, whatever loads it on core 1. One row a file in tools/goals/DP/, named after it; what rows share
# (rivals, generators, hugepages) is in tools/bench/.
#
# A row is a function `row_ID` that prints what it did with `note` and ends with one or more `goal ID FIGURE BOUND CONDITION`. It shortens itself when
# `quick` says so, and notes that. All rows together take under 6 minutes then.
for row in "$here"/tools/goals/DP/*.sh; do
  [ -e "$row" ] && . "$row"
done
unset row
