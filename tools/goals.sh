#!/usr/bin/env bash
# goals.sh SET BIN IMAGES OUT: measures the goals of a set and prints one line a row:
#   GOAL <id> <figure> (<bound>) met|missed
# QUICK=1 shortens long rows, which say so. ROWS="SK3 SK4" picks rows. The rows of a set are the
# functions of tools/goals/SET.sh whose names start with `row_`, in order; a function `after_row`
# runs after each. The exit status is 0 if every row was measured, met or not.
set -euo pipefail
set_name=$1
export BIN=$2 IMAGES=$3 OUT=$4
here=$(cd "$(dirname "$0")/.." && pwd)
rows=$here/tools/goals/$set_name.sh
[ -e "$rows" ] || { echo "no goals for SET=$set_name; there are: $(cd "$here/tools/goals" && ls -- *.sh | sed 's/\.sh$//' | tr '\n' ' ')" >&2; exit 2; }
mkdir -p "$OUT"

quick() { [ -n "${QUICK:-}" ]; }
note() { echo "  $*"; }
lines=()
# goal ID FIGURE BOUND CONDITION: records a figure; the condition is an awk expression.
goal() {
  local verdict=missed
  if awk "BEGIN{exit !($4)}"; then verdict=met; fi
  lines+=("GOAL $1 $2 ($3) $verdict")
  note "${lines[-1]}"
}
median() { sort -n | awk '{v[NR]=$1} END{if (NR) print (NR%2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

. "$here/tools/goals/lab.sh"
. "$rows"
unmeasured=0
for row in $(declare -F | awk '{print $3}' | grep '^row_' | sort -V); do
  [[ -z "${ROWS:-}" || " $ROWS " == *" ${row#row_} "* ]] || continue
  printf '\n== %s\n' "${row#row_}"
  if ! "$row"; then
    lines+=("GOAL ${row#row_} not measured (its script failed) missed")
    unmeasured=1
  fi
  ! declare -F after_row >/dev/null || after_row
done
printf '\n'
printf '%s\n' "${lines[@]}" | tee "$OUT/$set_name.txt"
exit $unmeasured
