# Goals of the first VMs: real guests on a taut vSwitch, measured.

# Row SK1: the demo: how long guests and measurement take, and what it leaves behind.
row_SK1() {
  local began left status
  snapshot() { { ls /run/netns 2>/dev/null; ip -o link | awk -F': ' '{print $2}' | sort; pgrep -fl 'taut|qemu-system' | grep -v goals; grep HugePages_Total /proc/meminfo; ls -d /tmp/taut-demo.* /run/taut 2>/dev/null; } || true; }
  snapshot >"$lab/before"
  began=$SECONDS
  "$here/tools/demo.sh" "$BIN" "$IMAGES" "$OUT/demo" >"$OUT/demo.log" 2>&1 || { tail "$OUT/demo.log"; return 1; }
  local took=$((SECONDS - began))
  snapshot >"$lab/after"
  # Runs the demo again and interrupts it in the middle of a measurement. A shell starts background
  # commands with SIGINT ignored, a terminal does not.
  env --default-signal=INT setsid "$here/tools/demo.sh" "$BIN" "$IMAGES" "$OUT/demo-interrupted" >"$OUT/demo-interrupted.log" 2>&1 &
  local demo=$!
  for _ in $(seq 600); do grep -q 'Debian VM to Debian VM' "$OUT/demo-interrupted.log" && break; sleep 0.1; done
  sleep 2
  kill -INT -- "-$demo"
  wait "$demo" && status=0 || status=$?
  snapshot >"$lab/interrupted"
  left=$(cat <(diff "$lab/before" "$lab/after") <(diff "$lab/before" "$lab/interrupted") | grep -c '^[<>]' || true)
  note "interrupted with status $status; differences left: $left"
  diff "$lab/before" "$lab/after" || true
  diff "$lab/before" "$lab/interrupted" || true
  goal SK1 "guests and measurement ${took}s, $left left behind" "<= 120 s, 0" "$took <= 120 && $left == 0"
}

# Row SK2: the tests from a fresh clone.
row_SK2() {
  if quick; then note "quick: the tests are run by themselves (make test), not here"; return 0; fi
  local began=$SECONDS
  git clone -q "$here" "$lab/clone"
  (unset TAUT_SOCKET; cd "$lab/clone" && CARGO_TARGET_DIR='' make TARGET=target test >"$OUT/make-test.log" 2>&1) || { tail "$OUT/make-test.log"; return 1; }
  local minutes=$(((SECONDS - began + 59) / 60))
  goal SK2 "green in $minutes min, $(grep -c '^test .* ok$' "$OUT/make-test.log") tests" "<= 25 min" "$minutes <= 25"
}

# Row SK3: two Debian guests: loss, and speed beside TAP + Linux bridge, in alternation.
row_SK3() {
  two_guests
  local seconds=60 repeats=7 each=4
  if quick; then seconds=10 repeats=3 each=3; note "quick: ping 10 s instead of 60, 3 repeats instead of 7"; fi
  taut bench ping alpha beta --duration $seconds --json "$OUT/sk3-ping.json"
  local lost; lost=$(jq '[.a.repeats[].lost] | add' "$OUT/sk3-ping.json")
  goal SK3-ping "$lost lost of $(jq '[.a.repeats[].count] | add' "$OUT/sk3-ping.json")" "0" "$lost == 0"

  bridge_vms alpha beta
  local rival="agent:$lab/twins/alpha/agent.sock agent:$lab/twins/beta/agent.sock"
  local pattern ratio
  for pattern in auto bulk; do
    # shellcheck disable=SC2086
    taut bench stream alpha beta --versus $rival --pattern $pattern --duration $each --repeat $repeats --json "$OUT/sk3-$pattern.json"
    ratio=$(jq '.a.median.mbit_s / .b.median.mbit_s' "$OUT/sk3-$pattern.json")
    goal "SK3-stream-$pattern" "$(jq -r '"\(.a.median.mbit_s|round) Mbit/s, bridge \(.b.median.mbit_s|round)"' "$OUT/sk3-$pattern.json"), ratio $(printf %.2f "$ratio")" ">= 1.00" "$ratio >= 1"
  done
  # shellcheck disable=SC2086
  taut bench rr alpha beta --versus $rival --duration $each --repeat $repeats --json "$OUT/sk3-rr.json"
  ratio=$(jq '.a.median.p50_us / .b.median.p50_us' "$OUT/sk3-rr.json")
  goal SK3-rr "p50 $(jq -r '"\(.a.median.p50_us|round) us, bridge \(.b.median.p50_us|round)"' "$OUT/sk3-rr.json"), ratio $(printf %.2f "$ratio")" "<= 1.00" "$ratio <= 1.0"
  end_rivals

  taut netns attach goal-ns --portgroup lan --ip 10.80.0.9/24
  local text; text=$(ip netns exec goal-ns ping -q -n -i 0.01 -c $((seconds * 20)) 10.80.0.1)
  note "$text"
  lost=$(sed -n 's/.* \([0-9.]*\)% packet loss.*/\1/p' <<<"$text")
  goal SK3-netns "real ping ${lost} % lost" "0 %" "$lost == 0"
}

# Row SK4: microguest to microguest beside the raw machine.
row_SK4() {
  [ -n "$daemon" ] || { start_daemon; taut vswitch create sw; taut portgroup create lan --vswitch sw; }
  micro micro1 10.80.0.11
  micro micro2 10.80.0.12
  taut bench rr micro1 micro2 --duration 5 --json "$OUT/sk4-rr.json"
  taut bench stream micro1 micro2 --pattern bulk --duration 5 --json "$OUT/sk4-stream.json"
  taut -o json bench raw >"$OUT/sk4-raw.json"
  cat "$OUT/sk4-raw.json"
  goal SK4 "rr p50/p99/p99.9 $(jq -r '.a.median | "\(.p50_us)/\(.p99_us)/\(.p99_9_us)"' "$OUT/sk4-rr.json") us, stream $(jq '.a.median.mbit_s/100 | round/10' "$OUT/sk4-stream.json") Gbit/s; ping-pong $(jq .ping_pong_ns.median "$OUT/sk4-raw.json") ns, memcpy of 64 KiB $(jq '.memcpy[] | select(.size == 65536).gbyte_s * 8 | round' "$OUT/sk4-raw.json") Gbit/s" "stated" 1
  taut vm delete --force micro1
  taut vm delete --force micro2
}

# generator SOCKET0 SOCKET1 SERVER: runs the DPDK load generator once on CPU 1, and prints its rate
# in Mpps.
generator() {
  "$lab/vgen" -l 1 --no-pci --no-telemetry --log-level=3 --file-prefix=taut-goal -m 256 --single-file-segments --huge-dir "$lab/huge" \
    --vdev "net_virtio_user0,path=$1,queues=1,queue_size=256,server=$3,mac=02:11:00:00:00:00" \
    --vdev "net_virtio_user1,path=$2,queues=1,queue_size=256,server=$3,mac=02:11:00:00:00:01" -- tput 64 "$generator_seconds" 256 \
    | sed -n 's/^TPUT.* rx=\([0-9.]*\) Mpps.*/\1/p'
}

# Row SK5: a vhost-user client that was not written with taut, in both socket directions, beside
# OVS-DPDK.
row_SK5() {
  local sources=${TAUT_RIVALS:-$here/../shared/bench/switch}
  [ -e "$sources/vgen.c" ] || { note "vgen.c is not in $sources; set TAUT_RIVALS"; return 1; }
  "$here/tools/setup.sh" rivals
  [ -n "$daemon" ] || { start_daemon; taut vswitch create sw; taut portgroup create lan --vswitch sw; }
  # shellcheck disable=SC2046
  gcc -O3 -march=native $(pkg-config --cflags libdpdk) "$sources/vgen.c" -o "$lab/vgen" $(pkg-config --libs libdpdk)
  local before run rates
  before=$(cat /proc/sys/vm/nr_hugepages)
  owes "echo $before >/proc/sys/vm/nr_hugepages"
  owes "umount $lab/huge"
  echo 1100 >/proc/sys/vm/nr_hugepages
  mkdir -p "$lab/huge" && mount -t hugetlbfs -o pagesize=2M none "$lab/huge"
  cp "$sources/ovs.sh" "$lab/"
  mkdir -p "$lab/sock" "$lab/results"
  sed -i "s|/mnt/huge|$lab/huge|" "$lab/ovs.sh"
  generator_seconds=3
  : >"$lab/taut-connects" >"$lab/taut-listens" >"$lab/ovs-normal"
  rates=$(quick && echo 1 || echo 3)
  for run in $(seq "$rates"); do
    # taut listens, the generator connects.
    taut port attach gen0 --portgroup lan --mac 02:11:00:00:00:00 --path "$lab/sock/t0" --listen
    taut port attach gen1 --portgroup lan --mac 02:11:00:00:00:01 --path "$lab/sock/t1" --listen
    for _ in $(seq 50); do [ -S "$lab/sock/t0" ] && [ -S "$lab/sock/t1" ] && break; sleep 0.1; done
    taskset -pc 0 "$(fabric_pid)" >/dev/null; for t in /proc/"$(fabric_pid)"/task/*; do taskset -pc 0 "$(basename "$t")" >/dev/null; done
    generator "$lab/sock/t0" "$lab/sock/t1" 0 >>"$lab/taut-listens"
    taut port detach gen0; taut port detach gen1
    # The generator listens, taut connects.
    taut port attach gen0 --portgroup lan --mac 02:11:00:00:00:00 --path "$lab/sock/c0"
    taut port attach gen1 --portgroup lan --mac 02:11:00:00:00:01 --path "$lab/sock/c1"
    generator "$lab/sock/c0" "$lab/sock/c1" 1 >>"$lab/taut-connects"
    taut port detach gen0; taut port detach gen1; rm -f "$lab"/sock/c?
    # OVS-DPDK.
    (cd "$lab" && ./ovs.sh start server && ./ovs.sh flows normal) >"$lab/ovs.log" 2>&1 || { tail "$lab/ovs.log"; break; }
    generator "$lab/ovs/vu0" "$lab/ovs/vu1" 0 >>"$lab/ovs-normal"
    (cd "$lab" && ./ovs.sh stop) >>"$lab/ovs.log" 2>&1
  done
  umount "$lab/huge"
  echo "$before" >/proc/sys/vm/nr_hugepages
  local listens connects ovs
  listens=$(median <"$lab/taut-listens") connects=$(median <"$lab/taut-connects") ovs=$(median <"$lab/ovs-normal")
  goal SK5 "taut listens ${listens:-0} Mpps, connects ${connects:-0}; OVS-DPDK normal ${ovs:-none}" "> 0 both ways" "${listens:-0} > 0 && ${connects:-0} > 0"
}

# gap FILE: prints the longest time between two answers in the output of `ping -D`, in ms.
gap() { sed -n 's/^\[\([0-9.]*\)\].* bytes from .*/\1/p' "$1" | awk 'NR>1 && $1-last>worst{worst=$1-last} {last=$1} END{printf "%.1f", worst*1000}'; }
carrier() { taut -o json vm addresses "$1" | jq '[.[] | select(.name != "lo")][0].carrier_changes'; }

# Row SK6: deaths of daemon, fabric and a VM, and their cost.
row_SK6() {
  two_guests
  taut netns list -o json | jq -e 'any(.name == "goal-ns")' >/dev/null || taut netns attach goal-ns --portgroup lan --ip 10.80.0.9/24
  local times run before after text fabric began carrier_before carrier_after
  times=$(quick && echo 3 || echo 10)
  pinging() { ip netns exec goal-ns ping -D -n -i 0.002 -c "$1" 10.80.0.1 >"$2"; }

  pinging 1500 "$lab/ping" & run=$!
  sleep 1; kill -9 "$daemon"; wait "$daemon" 2>/dev/null || true
  wait $run || true
  text=$(sed -n 's/.* \([0-9.]*\)% packet loss.*/\1/p' "$lab/ping")
  before=$(pgrep -f "guest=alpha" | head -n 1)
  start_daemon
  for _ in $(seq 100); do after=$(taut -o json vm show alpha | jq -r '.status.pid // empty'); [ "$after" = "$before" ] && break; sleep 0.05; done
  goal SK6-tautd "$text % lost, adopted pid $([ "$after" = "$before" ] && echo same || echo "$after")" "0 %, same" "$text == 0 && \"$after\" == \"$before\""

  carrier_before=$(carrier alpha)
  taut bench rr netns/goal-ns alpha --duration $((times + 2)) --json "$OUT/sk6-rr.json" >"$lab/rr.log" 2>&1 & local rr=$!
  sleep 1; : >"$lab/gaps"
  for _ in $(seq "$times"); do
    pinging 400 "$lab/ping" & run=$!
    sleep 0.3; fabric=$(fabric_pid); kill -9 "$fabric"
    wait $run || true
    gap "$lab/ping" >>"$lab/gaps"; echo >>"$lab/gaps"
  done
  local survived=yes; wait $rr || survived=no
  carrier_after=$(carrier alpha)
  local worst; worst=$(grep . "$lab/gaps" | median)
  note "gaps in ms: $(grep . "$lab/gaps" | tr '\n' ' ')"
  goal SK6-fabric "gap median $worst ms of $times, carrier changes $((carrier_after - carrier_before)), TCP survived: $survived" "< 200 ms, 0, yes" "$worst < 200 && $carrier_after == $carrier_before && \"$survived\" == \"yes\""

  : >"$lab/returns"
  for _ in $(seq "$times"); do
    fabric=$(fabric_pid)
    kill -9 "$daemon" "$fabric"; wait "$daemon" 2>/dev/null || true
    began=$(date +%s%N)
    setsid "$BIN/tautd" --state-dir "$lab/state" --run-dir "$lab/run" 2>>"$lab/tautd.log" & daemon=$!
    until ip netns exec goal-ns ping -n -c 1 -W 0.05 -i 0.01 10.80.0.1 >/dev/null 2>&1; do [ $((($(date +%s%N) - began) / 1000000)) -lt 20000 ] || break; done
    echo $((($(date +%s%N) - began) / 1000000)) >>"$lab/returns"
    for _ in $(seq 100); do taut daemon show >/dev/null 2>&1 && break; sleep 0.05; done
  done
  worst=$(median <"$lab/returns")
  note "back after ms: $(tr '\n' ' ' <"$lab/returns")"
  goal SK6-both "traffic back $worst ms after the restart (median of $times)" "< 1500 ms" "$worst < 1500"

  pinging 500 "$lab/ping" & run=$!
  sleep 0.3; kill -9 "$(taut -o json vm show beta | jq -r .status.pid)"
  wait $run || true
  text=$(sed -n 's/.* \([0-9.]*\)% packet loss.*/\1/p' "$lab/ping")
  for _ in $(seq 100); do [ "$(taut -o json vm show beta | jq -r .status.phase)" = failed ] && break; sleep 0.05; done
  goal SK6-qemu "beta $(taut -o json vm show beta | jq -r .status.phase), $(taut -o json events | jq '[.[] | select(.subject == "vm/beta" and .level != "info")] | length') event, others lost $text %" "failed, >= 1, 0 %" "$text == 0"
}

# Row SK7: bad input and hostile guests, by the tests that cover them.
row_SK7() {
  local log=$OUT/sk7.log
  (cd "$here" && TAUT_BIN=$BIN cargo test -q -p taut-tests --test host -- --test-threads=1 input hostile) >"$log" 2>&1 || { tail -n 40 "$log"; return 1; }
  local passed; passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{n+=$1} END{print n+0}')
  goal SK7 "$passed cases refused with reason, neighbours undisturbed" "all" "$passed > 0"
}

# Row SK8: the fate of each key of .vmx files.
row_SK8() {
  [ -n "$daemon" ] || { start_daemon; taut vswitch create sw; taut portgroup create lan --vswitch sw; }
  local file count=0 keys=0
  cp -r "$here/crates/vm/tests/vmx" "$lab/vmx"
  for file in "$lab"/vmx/*.vmx; do
    note "$(basename "$file")"
    # Makes the disks that the files name. Creating a VM looks at them, only starting it uses them.
    sed -n 's/.*fileName *= *"\([^"]*\)".*/\1/Ip' "$file" | while read -r disk; do [ -e "$lab/vmx/$disk" ] || [[ $disk == /* ]] || truncate -s 1M "$lab/vmx/$disk"; done
    taut -o json vm create -f "$file" --name "vmx$count" --portgroup lan >"$OUT/sk8-$count.json" || return 1
    note "$(jq -r '[.imported[].fate.fate] | group_by(.) | map("\(.[0]) \(length)") | join(", ")' "$OUT/sk8-$count.json")"
    keys=$((keys + $(jq '.imported | length' "$OUT/sk8-$count.json")))
    count=$((count + 1))
  done
  goal SK8 "$count files, $keys keys, each with its fate" ">= 3 files" "$count >= 3"
}

# Row SK9: the documented arrows match the code.
row_SK9() {
  (cd "$here" && cargo test -q -p taut-tests --test architecture) >"$OUT/sk9.log" 2>&1 || { tail "$OUT/sk9.log"; return 1; }
  goal SK9 "$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$OUT/sk9.log") test of the arrows passed" "agrees" 1
}
