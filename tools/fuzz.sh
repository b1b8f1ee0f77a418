#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]       fuzz all targets, or the named ones, one after the other
# fuzz.sh until COUNT [TARGET…]   fuzz, in portions, until each has COUNT executions of its sources
# fuzz.sh state [TARGET…]         tell what the record says about the sources as they are
# fuzz.sh sources TARGET          tell which files a target depends on
# fuzz.sh add TARGET FILE…        add inputs, such as that of a crash, to the corpus of a target
# fuzz.sh pack [TARGET…]          minimise what is kept and what fuzzing found, and pack it again
# fuzz.sh unpack [TARGET…]        unpack the kept corpus and print its folder
#
# fuzz/corpus/TARGET.tar.gz is the kept corpus of a target. Fuzzing unpacks it below
# target/fuzz/kept and stores new inputs in target/fuzz/corpus. Every run adds its executions to
# fuzz/RECORD.md, under a hash of the target's sources.
#
# Each run of a target ends in a line
#   FUZZ <target> <executions> executions <per second>/s <inputs> inputs <crashes> crashes
# and the last line is their sum. `state` prints a line for each target:
#   FUZZ-STATE <target> sources <hash> executions <n> edges <covered> of <instrumented>
#     crashes <n> over budget <n>
# The exit status is 0 without crashes. SANITIZER=address adds the address sanitizer, at half the
# rate; `until` runs without it unless told otherwise, all other commands with it.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
target_dir=${CARGO_TARGET_DIR:-$here/target}/fuzz
found=$target_dir/corpus
kept=$target_dir/kept
triple=x86_64-unknown-linux-gnu
record=fuzz/RECORD.md
[ "${1:-}" = until ] && sanitizer=${SANITIZER:-none} || sanitizer=${SANITIZER:-address}
bin=$target_dir/$sanitizer/$triple/release
all=(fuzz/fuzz_targets/*.rs)
all=("${all[@]##*/}")
all=("${all[@]%.rs}")

build() {
  # Coverage by compiler pass, with the flags of cargo-fuzz. The stable compiler supports them, but
  # only with RUSTC_BOOTSTRAP=1.
  local flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
  [ "$sanitizer" = none ] || flags+=" -Zsanitizer=$sanitizer"
  RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags cargo build --quiet --release --manifest-path fuzz/Cargo.toml \
    --target "$triple" --target-dir "$target_dir/$sanitizer"
}

# The sanitizer's quarantine for freed memory costs more than everything else when queues are
# created and dropped all the time.
export ASAN_OPTIONS=quarantine_size_mb=1:malloc_context_size=4:detect_leaks=0

# Rust's runtime ignores SIGPIPE, so that a write to a closed socket is an error. libFuzzer's
# start code does not.
trap '' PIPE

# count FOLDER: the number of its files.
count() { { [ ! -d "$1" ] || find "$1" -mindepth 1 -printf x; } | wc -c; }

# unpack TARGET: the kept corpus as files in $kept/TARGET.
unpack() {
  rm -rf "${kept:?}/$1" && mkdir -p "$kept/$1"
  [ ! -e "fuzz/corpus/$1.tar.gz" ] || tar -xzf "fuzz/corpus/$1.tar.gz" -C "$kept/$1"
}

# archive TARGET FOLDER: packs the files of a folder as the kept corpus. The same files always give
# the same archive.
archive() {
  find "$2" -mindepth 1 -printf '%f\n' | LC_ALL=C sort |
    tar -C "$2" --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 \
      --no-recursion --verbatim-files-from -T - -c |
    gzip -9n >"fuzz/corpus/$1.tar.gz"
  echo "$1: $(count "$2") inputs, $(stat -c %s "fuzz/corpus/$1.tar.gz") bytes packed"
}

# pack TARGET: merges what is kept and what was found into the fewest inputs with the same coverage.
# Inputs of crashes, oom-*, timeout-* and crash-*, are kept as they are.
pack() {
  local minimal=$target_dir/minimal/$1
  rm -rf "$minimal" && mkdir -p "$minimal" "$found/$1"
  unpack "$1"
  "$bin/$1" -merge=1 -max_len=2048 "$minimal" "$kept/$1" "$found/$1" 2>"$target_dir/$1.merge.log"
  grep -a 'MERGE-OUTER: .* new files' "$target_dir/$1.merge.log" | tail -n 1
  find "$kept/$1" \( -name 'crash-*' -o -name 'oom-*' -o -name 'timeout-*' \) -exec cp -t "$minimal" {} +
  archive "$1" "$minimal"
}

# files TARGET: its sources: its file, the files of the same crate that it imports, and all code of
# the crates of this repository that these use. Tests do not count.
files() {
  local folder=fuzz/targets/src
  local own="$folder/$1.rs $folder/lib.rs $folder/budget.rs" crates="" before=-
  while [ "$own" != "$before" ]; do
    before=$own
    # shellcheck disable=SC2086 # a list
    own=$(grep -oh 'use crate::[a-z_]*' $own | sed "s|use crate::\(.*\)|$folder/\1.rs|" |
      cat - <(tr ' ' '\n' <<<"$own") | sort -u | while read -r file; do [ ! -e "$file" ] || echo "$file"; done)
  done
  # shellcheck disable=SC2086 # a list
  crates=$(sed '/^use crate/d' ${own//"$folder/lib.rs"/} | grep -oh '\btaut_[a-z_]*' | sed 's/taut_//' | sort -u)
  before=-
  while [ "$crates" != "$before" ]; do
    before=$crates
    crates=$(for crate in $crates; do
      [ ! -e "crates/$crate/Cargo.toml" ] || {
        echo "$crate"
        awk '/^\[/ { own = $0 == "[dependencies]" } own && sub(/^taut-/, "") { sub(/[^a-z-].*/, ""); gsub(/-/, "_"); print }' \
          "crates/$crate/Cargo.toml"
      }
    done | sort -u)
  done
  echo "$own"
  for crate in $crates; do
    find "crates/$crate/src" -name '*.rs' ! -path '*/tests/*' ! -name 'tests.rs' ! -name '*_tests.rs'
  done
}

# sources TARGET: a hash over its sources. Lines that are comments do not count.
sources() {
  files "$1" | LC_ALL=C sort -u | while read -r file; do
    echo "$file"
    sed '\,^[[:space:]]*//,d' "$file"
  done | sha256sum | cut -c 1-12
}

# recorded TARGET: the line of the record about its sources as they are, as fields: executions,
# covered, instrumented, crashes, over budget.
recorded() {
  sed -n "s/^| $1 | $(sources "$1") | \([0-9]*\) | \([0-9]*\) of \([0-9]*\) | \([0-9]*\) | \([0-9]*\) |\$/\1 \2 \3 \4 \5/p" \
    "$record"
}

# note TARGET EXECUTIONS COVERED INSTRUMENTED CRASHES OVER: adds a run to the record. The table has
# one line for each target and state of its sources.
note() {
  local hash before
  hash=$(sources "$1")
  read -r -a before <<<"$(recorded "$1")"
  [ ${#before[@]} = 5 ] || before=(0 0 0 0 0)
  local line="| $1 | $hash | $((before[0] + $2)) | $3 of $4 | $((before[3] + $5)) | $((before[4] + $6)) |"
  {
    sed '/^|---/q' "$record"
    { sed '1,/^|---/d' "$record" | grep -v "^| $1 | $hash |" | grep '^|' || true; echo "$line"; } | LC_ALL=C sort
    sed '1,/^|---/d' "$record" | sed '/^|/d'
  } >"$target_dir/record"
  cp "$target_dir/record" "$record"
}

# fuzz TARGET OPTION…: runs a target, and adds the run to the record.
fuzz() {
  local target=$1 log=$target_dir/$1.log status=0 rate over covered instrumented
  shift
  mkdir -p "$found/$target" "$target_dir/crashes/$target"
  unpack "$target"
  "$bin/$target" "$@" -max_len=2048 -len_control=20 -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$target_dir/crashes/$target/" \
    "$found/$target" "$kept/$target" >"$log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  covered=$(sed -n 's/^#[0-9]*.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  instrumented=$(sed -n 's/^INFO: Loaded .* (\([0-9]*\) inline 8-bit counters.*/\1/p' "$log" | tail -n 1)
  # libFuzzer's status after SIGINT or SIGTERM: what was executed counts.
  if [ $status = 72 ]; then
    note "$target" "${executions:-0}" "${covered:-0}" "${instrumented:-0}" 0 0
    echo "FUZZ $target was interrupted after ${executions:-0} executions"
    exit 130
  fi
  over=0
  if [ $status != 0 ]; then
    crashed=$((crashed + 1))
    grep -aE 'panicked at|ERROR: |SUMMARY|Test unit written' -A2 "$log" | sed -n 1,20p
    ! grep -qaE 'over budget:|ERROR: libFuzzer: (timeout|out-of-memory)' "$log" || over=1
  fi
  note "$target" "${executions:-0}" "${covered:-0}" "${instrumented:-0}" $((status != 0)) $over
  sum=$((sum + ${executions:-0}))
  echo "FUZZ $target ${executions:-0} executions ${rate:-0}/s $(count "$found/$target") inputs $((status != 0)) crashes"
  return $status
}

# state TARGET: what the record says about it.
state() {
  local sums
  read -r -a sums <<<"$(recorded "$1")"
  [ ${#sums[@]} = 5 ] || sums=(0 0 0 0 0)
  echo "FUZZ-STATE $1 sources $(sources "$1") executions ${sums[0]} edges ${sums[1]} of ${sums[2]}" \
    "crashes ${sums[3]} over budget ${sums[4]}"
}

# until_done COUNT TARGET…: runs portions of the targets that have fewer executions, in turns, until
# there are none.
until_done() {
  local wanted=$1 again=yes ran left
  shift
  while [ -n "$again" ]; do
    again=
    for target in "$@"; do
      read -r ran _ <<<"$(recorded "$target")"
      left=$((wanted - ${ran:-0}))
      [ $left -gt 0 ] || continue
      # A portion takes ten minutes at most, and the corpus is run first.
      fuzz "$target" -runs=$((left + $(count "$found/$target") + 1)) \
        -max_total_time="${PORTION:-600}" || return
      again=yes
    done
  done
}

command=${1:-600}
shift || true
targets=("${@:-${all[@]}}")
case $command in
  add)
    target=${1:?usage: fuzz.sh add TARGET FILE…}
    shift
    unpack "$target"
    cp -t "$kept/$target" -- "$@"
    archive "$target" "$kept/$target"
    ;;
  unpack)
    for target in "${targets[@]}"; do unpack "$target" && echo "$kept/$target"; done
    ;;
  sources) files "${1:?usage: fuzz.sh sources TARGET}" | LC_ALL=C sort -u ;;
  state)
    for target in "${targets[@]}"; do state "$target"; done
    ;;
  until)
    wanted=${1:?usage: fuzz.sh until COUNT [TARGET…]}
    shift
    targets=("${@:-${all[@]}}")
    build
    sum=0 crashed=0
    until_done "$wanted" "${targets[@]}" || true
    for target in "${targets[@]}"; do state "$target"; done
    echo "FUZZ all $sum executions, $crashed crashes"
    [ "$crashed" = 0 ]
    ;;
  pack)
    build
    for target in "${targets[@]}"; do pack "$target"; done
    ;;
  *)
    build
    each=$((command / ${#targets[@]}))
    [ "$each" -gt 0 ] || each=1
    sum=0 crashed=0
    for target in "${targets[@]}"; do fuzz "$target" -max_total_time="$each" || true; done
    echo "FUZZ all $sum executions in $((each * ${#targets[@]})) s, $crashed crashes"
    [ "$crashed" = 0 ]
    ;;
esac
