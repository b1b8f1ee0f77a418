# Goals of latency sensitivity, best practices and dense mode. One row a file in tools/goals/PL/, named after it; what rows share is here.
for row in "$here"/tools/goals/PL/*.sh; do
  [ -e "$row" ] && . "$row"
done
unset row

# Each row has a daemon of its own, if it needs one.
after_row() {
  end_rivals
  end_stage
  stop_daemon
  leave_scope
}

# stage KIND: the neighbour experiment on a machine of any size, as small as this one: rt1 of KIND (vm or micro), which can be latency-sensitive, has one
# vCPU; four VMs n1 … n4 of one vCPU each compute; the namespace client, which stands for another machine, asks. So two pCPUs are enough: one that is
# exclusively rt1's when it is high, one for the host with everything else.
neighbours=(n1 n2 n3 n4)
stage() {
  enter_scope && start_daemon "${@:2}" && taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  local index
  # Memory and CPU are reserved for the one that is to be high.
  reserved=$'memory_reservation = "full"\n[cpu]\nreservation = "full"'
  stage_vm "$1" rt1 10.85.0.1 "$reserved" || return 1
  for index in "${!neighbours[@]}"; do stage_vm "$1" "${neighbours[$index]}" "10.85.0.$((index + 11))" "" || return 1; done
  taut netns attach taut-goal-client --portgroup lan --ip 10.85.0.100/24 --name client >/dev/null
}
# stage_vm KIND NAME IP MORE
stage_vm() {
  {
    [ "$1" = vm ] || printf 'kind = "micro"\n'
    printf 'memory = "%s"\n%s\n' "$([ "$1" = vm ] && echo 128MiB || echo 64MiB)" "$4"
    [ "$1" = micro ] || printf '[boot]\nkernel = "%s/vmlinuz"\ninitrd = "%s/initrd"\n' "$IMAGES/$(new_image)" "$IMAGES/$(new_image)"
    printf '[[nic]]\nportgroup = "lan"\nip = "%s/24"\n' "$3"
  } >"$lab/$2.toml"
  taut vm create -f "$lab/$2.toml" --name "$2" >/dev/null && taut vm start --wait "$2"
}
# native_pair: two namespaces with nothing but a cable between them.
native_pair() {
  owes "ip netns del taut-goal-a"
  owes "ip netns del taut-goal-b"
  ip netns add taut-goal-a && ip netns add taut-goal-b && ip link add tgv-a netns taut-goal-a type veth peer name tgv-b netns taut-goal-b || return 1
  ip -n taut-goal-a addr add 10.86.0.1/24 dev tgv-a && ip -n taut-goal-b addr add 10.86.0.2/24 dev tgv-b || return 1
  for index in a b; do ip -n taut-goal-$index link set "tgv-$index" up && ip -n taut-goal-$index link set lo up || return 1; done
}
end_stage() {
  local name
  for name in client a b; do ip netns del taut-goal-$name 2>/dev/null || true; done
}
