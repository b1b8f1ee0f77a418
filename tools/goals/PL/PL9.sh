# Row PL9: S3's experiment: puts of 1 KB into a Redis server, one at a time: in an untuned VM, in
# the same VM tuned, and without a VM. S3 found 4400, 7200 and 9200 a second. To explain the gap,
# the client also runs inside the guest: no host can tune what that takes.
row_PL9() {
  local repeats=4 seconds=6 file=$OUT/pl9.json untuned tuned native inside
  type -P redis-check-rdb >/dev/null || { note "Redis is not installed: tools/setup.sh test"; return 1; }
  if quick; then repeats=2 seconds=3; note "quick: 2 repeats of 3 s instead of 4 of 6 s"; fi
  enter_scope && start_daemon && taut vswitch create sw && taut portgroup create lan --vswitch sw && native_pair || return 1
  [ -e "$BIN/libtaut_vmci.so" ] || (cd "$here" && cargo build -q --release -p taut-preload --lib) || return 1
  mkdir -p "$lab/pl9"
  : >"$lab/pl9/map"
  echo "redis-server --bind 0.0.0.0 --protected-mode no --save '' --appendonly no" >"$lab/pl9/script"
  "$here/tools/make-redis.sh" "$IMAGES" "$(new_image)" "$BIN/libtaut_vmci.so" "$lab/pl9/map" "$lab/pl9/script" "$lab/pl9/image" >"$OUT/pl9-image.log" 2>&1 || { tail -n 3 "$OUT/pl9-image.log"; return 1; }
  printf 'memory = "512MiB"\nmemory_reservation = "full"\n[cpu]\nreservation = "full"\n[boot]\nkernel = "%s/vmlinuz"\ninitrd = "%s/initrd"\n[[nic]]\nportgroup = "lan"\nip = "10.85.0.1/24"\n[vmci]\n' "$lab/pl9/image" "$lab/pl9/image" >"$lab/rt1.toml"
  taut vm create -f "$lab/rt1.toml" --name rt1 >/dev/null && taut vm start --wait rt1 && taut netns attach taut-goal-client --portgroup lan --ip 10.85.0.100/24 --name client >/dev/null || return 1
  # The program is the server when it is called by this name.
  ip netns exec taut-goal-b bash -c 'exec -a redis-server "$0" "$@"' "$(type -P redis-check-rdb)" --bind 10.86.0.2 --protected-mode no --save '' --appendonly no --daemonize no --dir "$lab" >"$OUT/pl9-redis.log" 2>&1 </dev/null & pl9_redis=$!
  for _ in $(seq 120); do ip netns exec taut-goal-client redis-cli -h 10.85.0.1 ping 2>/dev/null | grep -q PONG && break; sleep 0.5; done
  taut bench puts netns/taut-goal-client rt1 --address 10.85.0.1 --native netns/taut-goal-a netns/taut-goal-b --inside --duration $seconds --repeat $repeats --json "$file" --svg "$OUT/pl9.svg" >"$OUT/pl9.txt" || { kill $pl9_redis; return 1; }
  kill $pl9_redis; wait $pl9_redis 2>/dev/null || true
  sed -n '1,/^$/p' "$OUT/pl9.txt" | sed 's/^/  /'
  untuned=$(neighbour_figure "$file" untuned per_s) tuned=$(neighbour_figure "$file" tuned per_s) native=$(neighbour_figure "$file" native per_s) inside=$(neighbour_figure "$file" inside per_s)
  pl9_table
  # Explains the gap for one put.
  jq -nr --argjson t "$tuned" --argjson n "$native" --argjson i "$inside" --argjson u "$untuned" '
def us: 1e6 / . | round; "a put takes \($n | us) us natively, \($t | us) us tuned, \($u | us) us untuned. Client and server both in the guest, without any vNIC or thread of the host, take \($i | us) us, \($n / $i | round) times what they take natively: the emulated processor is the gap. One of the two, with its side of the network stack, is about \(5e5 / $i | round) us of the tuned \($t | us); nothing on the host changes that part."' | while read -r line; do note "$line"; done
  goal PL9 "$(printf '%.0f puts/s untuned, %.0f tuned (%s x), %.0f native: tuned is %.0f %% of native (S3: 4400, 7200, 9200: 78 %%)' "$untuned" "$tuned" "$(ratio "$tuned" "$untuned")" "$native" "$(awk -v a="$tuned" -v b="$native" 'BEGIN{print (b > 0) ? 100 * a / b : 0}')")" "untuned < tuned < native" "$untuned < $tuned && $tuned < $native && $untuned > 0"
}

# pl9_table: prints S3's appendix line by line, and what became of each line here.
pl9_table() {
  local what became
  while IFS='|' read -r what became; do note "$(printf '%-44s %s' "$what" "$became")"; done <<'TABLE'
S3's line|here
power management, C-states (BIOS)|tuned: pm_qos_resume_latency_us n/a on its pCPU; the rest: taut check host
vCPU and memory affinity|tuned: an exclusive pCPU; one node here
guest OS|Debian, Linux 6.12, the same in both
pNIC interrupt moderation|no pNIC takes part
vNIC coalescing off|tuned: by latency sensitivity high
LRO off|tuned: by latency sensitivity high
idle wake-up (halt_desched, spin before halt)|under KVM only (cpu-pm): the guest is emulated here
latency sensitivity high|tuned
Java large pages, iptables, SELinux|none of them is in the guest
TABLE
}
