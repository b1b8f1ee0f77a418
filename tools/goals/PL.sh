# Goals of latency sensitivity, best practices and dense mode. One row a file in tools/goals/PL/,
# named after it; shared functions are here.
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

# stage KIND: sets up the neighbour experiment for a machine of any size. rt1 (KIND is vm or micro)
# has one vCPU and can be latency-sensitive. Four VMs n1 … n4 of one vCPU each compute. The
# namespace client stands for another machine and sends the requests. Two pCPUs are enough: one for
# rt1 when it is high, one for the host and everything else.
neighbours=(n1 n2 n3 n4)
stage() {
  enter_scope && start_daemon "${@:2}" && taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  local index
  # Only the VM that becomes high reserves memory and CPU.
  reserved=$'memory_reservation = "full"\n[cpu]\nreservation = "full"'
  stage_vm "$1" rt1 10.85.0.1 "$reserved" || return 1
  for index in "${!neighbours[@]}"; do stage_vm "$1" "${neighbours[$index]}" "10.85.0.$((index + 11))" "" || return 1; done
  taut netns attach taut-goal-client --portgroup lan --ip 10.85.0.100/24 --name client >/dev/null
}
# stage_vm KIND NAME IP MORE: creates and starts a VM with these additional lines in its file.
stage_vm() {
  {
    [ "$1" = vm ] || printf 'kind = "micro"\n'
    printf 'memory = "%s"\n%s\n' "$([ "$1" = vm ] && echo 128MiB || echo 64MiB)" "$4"
    [ "$1" = micro ] || printf '[boot]\nkernel = "%s/vmlinuz"\ninitrd = "%s/initrd"\n' "$IMAGES/$(new_image)" "$IMAGES/$(new_image)"
    printf '[[nic]]\nportgroup = "lan"\nip = "%s/24"\n' "$3"
  } >"$lab/$2.toml"
  taut vm create -f "$lab/$2.toml" --name "$2" >/dev/null && taut vm start --wait "$2"
}
# native_pair: makes two namespaces with a cable (veth) between them.
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
