# A Linux bridge with two TAP devices, driven by vgen through DPDK's TAP driver. The generator makes
# a system call a frame, and the bridge does its work in those calls, on core 1. It shows what is
# usual; nothing else is comparable.
bridge_start() { owes 'ip link del taut-rig-br'; ip link add taut-rig-br type bridge mcast_snooping 0 && ip link set taut-rig-br up; }
bridge_pids() { :; }
bridge_sockets() { echo tap tap; }
bridge_stop() { ip link del taut-rig-br; }
bridge_vdevs() {
  # The devices appear with the generator and go with it.
  (for _ in $(seq 100); do
    [ -e /sys/class/net/taut-rig1 ] && { for end in 0 1; do ip link set "taut-rig$end" master taut-rig-br up; done; break; }
    sleep 0.05
  done) >/dev/null 2>&1 &
  echo "--vdev net_tap0,iface=taut-rig0 --vdev net_tap1,iface=taut-rig1"
}
