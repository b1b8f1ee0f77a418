# Goals of the code's structure: folder arrows, speed beside the build before it, documents, sizes,
# atomic settings, CI. One row a file in tools/goals/HS/, named after it; what rows share is here.
#
# A row is a function `row_ID` that prints what it did with `note` and ends with one or more
# `goal ID FIGURE BOUND CONDITION`. It shortens itself when `quick` says so, and notes that.
. "$here/tools/bench/switches.sh"
# Stages and figures of other sets, without their rows.
. "$here/tools/goals/VC-G.sh"
. "$here/tools/goals/PL.sh"
unset -f $(declare -F | awk '$3 ~ /^row_/ {print $3}')
for row in "$here"/tools/goals/HS/*.sh; do . "$row"; done
unset row

# The commit that everything is compared with.
hs_before=e2e8590

after_row() {
  end_stage
  stop_daemon
  leave_scope
}

# hs_test TEST FILTER LOG: runs tests of taut-tests; what they print goes to LOG.
hs_test() {
  (cd "$here" && TAUT_BIN=$BIN TAUT_IMAGES=$IMAGES cargo test -p taut-tests --test "$1" -- \
    --test-threads=1 --nocapture "$2") >"$3" 2>&1 || { tail -n 30 "$3"; return 1; }
}

# hs_old_tree: the sources of the old commit, in $hs_old.
hs_old_tree() {
  hs_old=${CARGO_TARGET_DIR:-$here/target}/before/src
  [ -d "$hs_old/crates" ] || { mkdir -p "$hs_old" && git -C "$here" archive "$hs_before" | tar -x -C "$hs_old"; }
}
