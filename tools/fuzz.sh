#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]   fuzz all targets, or the named ones, one after the other
# fuzz.sh add TARGET FILE…    add inputs, such as that of a crash, to the corpus of a target
# fuzz.sh pack [TARGET…]      minimise what is kept and what fuzzing found, and pack it again
# fuzz.sh unpack [TARGET…]    unpack the kept corpus and print its folder
#
# fuzz/corpus/TARGET.tar.gz is the kept corpus of a target. Fuzzing unpacks it below
# target/fuzz/kept and stores new inputs in target/fuzz/corpus.
#
# Each target ends in a line
#   FUZZ <target> <executions> executions <per second>/s <inputs> inputs <crashes> crashes
# and the last line is their sum. The exit status is 0 without crashes. SANITIZER=none omits the
# address sanitizer and doubles the rate.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
target_dir=${CARGO_TARGET_DIR:-$here/target}/fuzz
found=$target_dir/corpus
kept=$target_dir/kept
triple=x86_64-unknown-linux-gnu
sanitizer=${SANITIZER:-address}
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
count() { find "$1" -mindepth 1 -printf x | wc -c; }

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

fuzz() {
  local target=$1 seconds=$2 log=$target_dir/$1.log status=0 rate
  mkdir -p "$found/$target" "$target_dir/crashes/$target"
  unpack "$target"
  "$bin/$target" -max_total_time="$seconds" -max_len=2048 -len_control=20 -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$target_dir/crashes/$target/" \
    "$found/$target" "$kept/$target" >"$log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  if [ $status != 0 ]; then
    crashed=$((crashed + 1))
    grep -E 'panicked at|ERROR: |SUMMARY|Test unit written' -A2 "$log" | sed -n 1,20p
  fi
  sum=$((sum + ${executions:-0}))
  echo "FUZZ $target ${executions:-0} executions ${rate:-0}/s $(count "$found/$target") inputs $((status != 0)) crashes"
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
  pack)
    build
    for target in "${targets[@]}"; do pack "$target"; done
    ;;
  *)
    build
    each=$((command / ${#targets[@]}))
    [ "$each" -gt 0 ] || each=1
    sum=0 crashed=0
    for target in "${targets[@]}"; do fuzz "$target" "$each"; done
    echo "FUZZ all $sum executions in $((each * ${#targets[@]})) s, $crashed crashes"
    [ "$crashed" = 0 ]
    ;;
esac
