# Row PL11: the .vmx files of crates/vm/tests: every key of the best practices takes effect, or is
# reported with what does the same here. No key is lost.
row_PL11() {
  local file keys fates silent=0 total=0 effect=0 reported=0 key
  start_daemon || return 1
  taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  for file in "$here"/crates/vm/tests/vmx/*.vmx; do
    # Empty files stand for the disks that the .vmx files name.
    cp "$file" "$lab/"
    sed -n 's/.*fileName *= *"\([^"]*\)".*/\1/Ip' "$file" | while read -r key; do mkdir -p "$(dirname "$lab/$key")"; [ -e "$lab/$key" ] || truncate -s 1M "$lab/$key"; done
    taut -o json vm create -f "$lab/$(basename "$file")" --name "pl11-$(basename "$file" .vmx)" --portgroup lan >"$OUT/pl11-$(basename "$file").json" || return 1
    keys=$(grep -cE '^[^#]*=' "$file") fates=$(jq '.imported | length' "$OUT/pl11-$(basename "$file").json")
    total=$((total + keys))
    [ "$keys" = "$fates" ] || silent=$((silent + keys - fates))
    note "$(basename "$file"): $keys keys; $(jq -c '[.imported[].fate | if type == "object" then .fate else . end] | group_by(.) | map({(.[0]): length}) | add' "$OUT/pl11-$(basename "$file").json")"
  done
  local tuned=$OUT/pl11-latency-tuned.vmx.json
  for key in sched.cpu.latencySensitivity sched.cpu.affinity sched.mem.min numa.nodeAffinity numa.vcpu.min numa.vcpu.preferHT monitor_control.halt_desched \
    monitor.idleLoopSpinBeforeHalt monitor.idleLoopSpinBeforeHaltUP monitor.idleLoopMinSpinUS ethernet0.coalescingScheme ethernet1.coalescingParams ethernet0.virtualDev; do
    fates=$(jq -r --arg key "$key" '.imported[] | select(.key == $key).fate | if type == "object" then .fate else . end' "$tuned")
    case $fates in understood | mapped) effect=$((effect + 1)) ;; reported) reported=$((reported + 1)) ;; *) silent=$((silent + 1)); note "$key: ${fates:-no fate}" ;; esac
  done
  goal PL11 "$total keys of the files; of 13 keys of the best practices $effect take effect, $reported are reported, $silent neither" "0 neither" "$silent == 0"
}
