#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]: so many seconds of fuzzing over all targets, or the named ones, one after the other. What each adds to its corpus stays in
# target/fuzz/corpus; fuzz/corpus is what is kept (`fuzz.sh minimise` renews it). Each target ends in a line
#   FUZZ <target> <executions> executions <per second>/s <inputs in the corpus> inputs <crashes> crashes
# and the whole in their sum. Exit status 0 without crashes. SANITIZER=none leaves out the address sanitizer, which makes it twice as fast.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
target_dir=${CARGO_TARGET_DIR:-$here/target}/fuzz
found=$target_dir/corpus
triple=x86_64-unknown-linux-gnu
sanitizer=${SANITIZER:-address}
bin=$target_dir/$sanitizer/$triple/release

build() {
  # Coverage by compiler pass, as cargo-fuzz asks for it; the stable compiler has all of it, but has to be told to let us use it.
  local flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
  [ "$sanitizer" = none ] || flags+=" -Zsanitizer=$sanitizer"
  RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target "$triple" --target-dir "$target_dir/$sanitizer"
}

# The sanitizer's habit of keeping freed memory costs more than all else when queues come and go.
export ASAN_OPTIONS=quarantine_size_mb=1:malloc_context_size=4:detect_leaks=0

# As Rust's own start of a program does it, which libFuzzer's leaves out: who writes to a closed socket gets an error.
trap '' PIPE

all=$(cd fuzz/fuzz_targets && ls -- *.rs | sed 's/\.rs$//')

minimise() {
  local target
  for target in $all; do
    mkdir -p "$found/$target" "fuzz/corpus/$target"
    rm -rf "$found/$target.min" && mkdir "$found/$target.min"
    "$bin/$target" -merge=1 -max_len=1024 "$found/$target.min" "fuzz/corpus/$target" "$found/$target" 2>/dev/null
    rm -rf "fuzz/corpus/$target" && cp -r "$found/$target.min" "fuzz/corpus/$target"
    rm -rf "$found/$target" && mv "$found/$target.min" "$found/$target"
    echo "$target: $(ls "fuzz/corpus/$target" | wc -l) inputs, $(du -sk --apparent-size "fuzz/corpus/$target" | cut -f1) KiB"
  done
}

seconds=${1:-600}
shift || true
build
[ "$seconds" != minimise ] || { minimise; exit; }
targets=${*:-$all}
each=$((seconds / $(wc -w <<<"$targets")))
[ "$each" -gt 0 ] || each=1
sum=0 crashed=0
for target in $targets; do
  mkdir -p "$found/$target" "fuzz/corpus/$target" "$target_dir/crashes/$target"
  log=$target_dir/$target.log
  status=0
  "$bin/$target" -max_total_time="$each" -max_len=2048 -len_control=20 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$target_dir/crashes/$target/" "$found/$target" "fuzz/corpus/$target" >"$log" 2>&1 || status=$?
  done_=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  if [ $status != 0 ]; then
    crashed=$((crashed + 1))
    grep -E 'panicked at|ERROR: |SUMMARY|Test unit written' -A2 "$log" | head -20
  fi
  sum=$((sum + ${done_:-0}))
  echo "FUZZ $target ${done_:-0} executions ${rate:-0}/s $(ls "$found/$target" | wc -l) inputs $((status != 0)) crashes"
done
echo "FUZZ all $sum executions in $((each * $(wc -w <<<"$targets"))) s, $crashed crashes"
[ "$crashed" = 0 ]
