#!/usr/bin/env bash
# bench-switch.sh BIN OUT: measures taut beside its rivals, the switch on core 0 and the generator
# on core 1, with all samples of a kind in alternation. Writes bench/results/MACHINE-DATE.json
# (every sample and its machine) and, from that, docs/performance.md with its picture.
# ROUNDS=N repeats everything N times (3). ONLY=REGEX measures matching cells only, such as
# ONLY='^(taut|vhost) taut'. NOTE=TEXT appears on the page. QUICK=1 takes few short samples and
# writes to OUT only. REPORT is the program that makes the page.
set -euo pipefail
export PATH=/usr/sbin:/sbin:$PATH
export BIN=$1 OUT=$2
REPORT=${REPORT:-$BIN/examples/switch_report}
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$OUT"
note() { echo "  $*"; }
. "$here/tools/goals/lab.sh"
. "$here/tools/bench/switches.sh"
"$here/tools/setup.sh" rivals test

rounds=${ROUNDS:-3} rig_repeats=3 rig_seconds=0.5
[ -z "${QUICK:-}" ] || rounds=1 rig_repeats=2 rig_seconds=0.3
rig_open
rig_resume taut
taut_pair learning '--forged-transmits --mac-learning' ''
taut_pair offload '' --offloads

# Cells that are compared follow each other, so that the machine's state changes little in between.
cells=()
for kind in "one-way 64" "one-way 256" "one-way 1518" "both-ways 64" "traversal 64" "one-way 64 --packed" "traversal 64 --packed"; do
  for switch in taut ovs_normal ovs_fixed vhost; do cells+=("$switch taut $kind"); done
done
for kind in "--touch" "--flows 1024 --macs 100" "--flows 65536 --macs 100"; do
  for switch in taut_learning ovs_normal; do cells+=("$switch taut one-way 64 $kind"); done
done
cells+=("taut_offload taut one-way 65549 --entries 64 --memcpy")
# Generators that were not written with taut confirm the figures, where they are present.
for generator in lgen vgen; do
  [ -e "$(rivals_folder)/$generator.c" ] || continue
  for size in 64 256 1518; do
    for switch in taut ovs_normal ovs_fixed vhost; do cells+=("$switch $generator one-way $size"); done
  done
done
[ ! -e "$(rivals_folder)/vgen.c" ] || cells+=("bridge vgen one-way 64" "bridge vgen one-way 1518")

for round in $(seq $rounds); do
  for cell in "${cells[@]}"; do
    [[ "$cell" =~ ${ONLY:-.} ]] || continue
    note "round $round of $rounds: $cell"
    sample "$cell" || sample "$cell" || note "left out: $cell"
  done
done
rig_close

machine() {
  jq -n --arg cpu "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" --arg kernel "$(uname -r)" --arg os "$(. /etc/os-release && echo "$PRETTY_NAME")" \
    --argjson cpus "$(nproc)" --arg taut "$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)" --arg date "$(date -u +%F)" \
    --arg ovs "$(ovs-vsctl --version | sed -n '1s/.* //p')" --arg dpdk "$(dpkg-query -W -f '${Version}' dpdk)" \
    --arg note "${NOTE:-}" --argjson virtual "$(grep -qw hypervisor /proc/cpuinfo && echo true || echo false)" \
    '{$cpu, $cpus, $virtual, $os, $kernel, $taut, $ovs, $dpdk, $date, $note}'
}
jq -s --argjson machine "$(machine)" '{machine: $machine, samples: .}' "$samples" >"$OUT/switch.json"
if [ -z "${QUICK:-}" ]; then
  name=$(jq -r '.machine | "\(.date)-\(.cpu | gsub("[^A-Za-z0-9]+"; "-") | ascii_downcase)"' "$OUT/switch.json")
  mkdir -p "$here/bench/results"
  # One sample a line, so that two files can be compared.
  jq -r '"{\"machine\": \(.machine | tojson),\n \"samples\": [\n" + (.samples | map(tojson) | join(",\n")) + "\n]}"' "$OUT/switch.json" >"$here/bench/results/$name.json"
  "$REPORT" "$here/bench/results/$name.json" "$here/docs/performance.md" "$here/docs/performance.svg"
else
  "$REPORT" "$OUT/switch.json" "$OUT/performance.md" "$OUT/performance.svg"
fi
