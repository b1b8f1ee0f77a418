# DPDK's vhost library without a switch, forwarding blindly from one port to the other: the lower
# bound of any implementation that copies twice.
vhost_start() {
  mkdir -p "$rig/vhost"
  mkfifo "$rig/vhost/input"
  (
    exec 9<>"$rig/vhost/input"
    exec setsid stdbuf -oL dpdk-testpmd -l 0,1 --main-lcore 1 --no-pci --file-prefix=taut-rig-vhost -m 512 --single-file-segments \
      --huge-dir "$rig/huge" --vdev "net_vhost0,iface=$rig/vhost/0,queues=1" --vdev "net_vhost1,iface=$rig/vhost/1,queues=1" \
      -- -i --nb-cores=1 --txd=1024 --rxd=1024 --no-flush-rx --total-num-mbufs=16384 --forward-mode=io <&9 >"$rig/vhost/log" 2>&1
  ) &
  rig_testpmd=$!
  for _ in $(seq 200); do grep -q 'testpmd>' "$rig/vhost/log" 2>/dev/null && break; kill -0 "$rig_testpmd" 2>/dev/null || break; sleep 0.1; done
  grep 'testpmd>' "$rig/vhost/log" || { cat "$rig/vhost/log"; return 1; }
  echo start >"$rig/vhost/input"
  sleep 0.3
}
vhost_sockets() { echo "$rig/vhost/0 $rig/vhost/1"; }
vhost_pids() { echo "${rig_testpmd:-}"; }
vhost_stop() {
  printf 'stop\nquit\n' >"$rig/vhost/input"
  for _ in $(seq 50); do kill -0 "$rig_testpmd" 2>/dev/null || break; sleep 0.1; done
  kill "$rig_testpmd" 2>/dev/null || true
  wait "$rig_testpmd" || true
  rm -rf "$rig/vhost"
}
