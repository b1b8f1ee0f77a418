# Row VC-G4: QEMU guests with Debian's kernels: streams at 256 B, 4 KiB and 64 KiB, and request and
# response, two guests of each kernel. Beside them the same guests on vhost-device-vsock, which
# works up to 3500 B from VM to VM, and TCP through the vSwitch.
row_VC-G4() {
  local seconds=3 repeats=3 image kernel own rival message failed rate tcp other
  if quick; then seconds=1 repeats=1; note "quick: 1 measurement of 1 s instead of 3 of 3 s"; fi
  for image in $(old_image) $(new_image); do
    kernel=${image#debian-} own=$OUT/vc-g4-$kernel.json rival=$OUT/vc-g4-$kernel-rival.json failed=
    vc_daemon && vc_vm a "$image" 10.82.0.1 && vc_vm b "$image" 10.82.0.2 || return 1
    taut -o json bench vsock a b --message 256,4KiB,64KiB --socket-size 256KiB --duration $seconds --repeat $repeats --against tcp >"$own" || return 1
    taut -o json bench vsock a b --mode rr --message 256 --socket-size 256KiB --duration $seconds --repeat $repeats --against tcp >"$own.rr" || return 1
    rm -f "$rival" "$rival.rr"
    local ends=("agent:$lab/twins/a/agent.sock" "agent:$lab/twins/b/agent.sock")
    if vc_rival_vms; then
      taut -o json bench vsock "${ends[@]}" --message 256,3500 --socket-size 256KiB --duration $seconds --repeat $repeats >"$rival" || return 1
      taut -o json bench vsock "${ends[@]}" --mode rr --message 256 --socket-size 256KiB --duration $seconds --repeat $repeats >"$rival.rr" || return 1
    fi
    end_rivals
    stop_daemon
    for message in 256 4096 65536; do
      rate=$(cell "$own" vsock 262144 $message 1 mbit_s) tcp=$(cell "$own" tcp 262144 $message 1 mbit_s)
      other=$([ ! -e "$rival" ] || cell "$rival" vsock 262144 $message 1 mbit_s)
      goal "VC-G4-$kernel-$message" "$(printf %.0f "$rate") Mbit/s, TCP $(printf %.0f "$tcp"), vhost-device-vsock $(g4_rival)" \
        ">= vhost-device-vsock$([ "$image" != "$(new_image)" ] || echo ", > TCP")" "$rate > 0 && $rate >= ${other:-0} && ($([ "$image" = "$(new_image)" ] && echo "$rate > $tcp" || echo 1))"
    done
    other=$([ ! -e "$rival.rr" ] || cell "$rival.rr" vsock 262144 256 1 p50_us)
    goal "VC-G4-$kernel-rr" "p50/p99/p99.9 $(g3_shown "$own.rr" vsock) us, TCP $(g3_shown "$own.rr" tcp), vhost-device-vsock $([ -z "$other" ] && echo "not measured" || g3_shown "$rival.rr" vsock)" \
      "p50 <= vhost-device-vsock's" "$(cell "$own.rr" vsock 262144 256 1 p50_us) <= ${other:-1e9}"
  done
}

# Describes what the rival did with $message; $other is its figure, if any.
g4_rival() {
  if [ ! -e "$rival" ]; then
    echo "not measured"
  elif [ -n "$other" ]; then
    printf %.0f "$other"
  else
    echo "stalls (3500 B: $(printf %.0f "$(cell "$rival" vsock 262144 3500 1 mbit_s)"))"
  fi
}

# vc_rival_vms: starts a and b once more, without a network, their VMCI devices on
# vhost-device-vsock.
vc_rival_vms() {
  local name
  vc_rival_devices a b || return 1
  on_rival() {
    case $word in
      socket,id=nic0,*) return 1 ;;
      vhost-user,id=net0,*) word=hubport,id=net0,hubid=0 ;;
      socket,id=vmci0,*) word=socket,id=vmci0,path=$lab/twins/$name.vmci ;;
    esac
  }
  for name in a b; do start_twin "$name" "$lab/twins/$name" on_rival; done
  for _ in $(seq 60); do
    taut bench vsock "agent:$lab/twins/a/agent.sock" "agent:$lab/twins/b/agent.sock" --mode rr --message 1 --socket-size 64KiB --duration 0.1 >/dev/null 2>&1 && return
    sleep 1
  done
  echo "guests on vhost-device-vsock do not answer" >&2
  return 1
}
