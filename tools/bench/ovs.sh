# OVS-DPDK with its polling thread on core 0 and a database of its own. `ovs_normal` forwards as a
# learning switch (action NORMAL), `ovs_fixed` by two fixed flows; both are one process.
ovs_vsctl() { OVS_RUNDIR=$rig/ovs ovs-vsctl --db="unix:$rig/ovs/db.sock" --timeout=20 "$@"; }

ovs_up() {
  [ ! -e "$rig/ovs/vs.pid" ] || return 0
  local end
  rm -rf "$rig/ovs"
  mkdir -p "$rig/ovs"
  export OVS_RUNDIR=$rig/ovs OVS_LOGDIR=$rig/ovs OVS_DBDIR=$rig/ovs OVS_SYSCONFDIR=$rig/ovs
  ovsdb-tool create "$rig/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
  ovsdb-server "$rig/ovs/conf.db" --remote="punix:$rig/ovs/db.sock" --unixctl="$rig/ovs/ovsdb.ctl" --pidfile="$rig/ovs/ovsdb.pid" --detach \
    --log-file="$rig/ovs/ovsdb.log" -vconsole:off
  ovs_vsctl --no-wait init
  ovs_vsctl --no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:dpdk-socket-mem=512 other_config:dpdk-lcore-mask=0x1 \
    other_config:pmd-cpu-mask=0x1 other_config:dpdk-extra="--no-pci --huge-dir $rig/huge --file-prefix taut-rig-ovs"
  /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk "unix:$rig/ovs/db.sock" --unixctl="$rig/ovs/vs.ctl" --pidfile="$rig/ovs/vs.pid" --detach \
    --log-file="$rig/ovs/vs.log" -vconsole:off
  ovs_vsctl add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure
  for end in 0 1; do ovs_vsctl add-port br0 "vu$end" -- set Interface "vu$end" type=dpdkvhostuser ofport_request=$((end + 1)); done
  for _ in $(seq 100); do [ -S "$rig/ovs/vu0" ] && [ -S "$rig/ovs/vu1" ] && break; sleep 0.05; done
  [ -S "$rig/ovs/vu1" ]
}

ovs_flows() {
  ovs-ofctl del-flows "unix:$rig/ovs/br0.mgmt"
  local flow
  for flow in "$@"; do ovs-ofctl add-flow "unix:$rig/ovs/br0.mgmt" "$flow"; done
}
ovs_sockets() { echo "$rig/ovs/vu0 $rig/ovs/vu1"; }
ovs_pids() { cat "$rig/ovs/vs.pid" 2>/dev/null || true; }
ovs_down() {
  local file pid
  for file in vs ovsdb; do
    pid=$(cat "$rig/ovs/$file.pid" 2>/dev/null) || continue
    kill "$pid"
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  done
  rm -rf "$rig/ovs"
}

# Installs the flows of the switch that is measured now.
ovs_as() {
  [ "$(cat "$rig/ovs/as" 2>/dev/null)" != "$1" ] || return 0
  case $1 in
    normal) ovs_flows actions=normal ;;
    fixed) ovs_flows in_port=1,actions=output:2 in_port=2,actions=output:1 ;;
  esac
  echo "$1" >"$rig/ovs/as"
}

ovs_normal_start() { ovs_up; }
ovs_normal_prepare() { ovs_as normal; }
ovs_normal_pids() { ovs_pids; }
ovs_normal_sockets() { ovs_sockets; }
ovs_normal_stop() { ovs_down; }
# A learned address replaces flooding only when OVS next revalidates its flows.
ovs_normal_settle=1.5

ovs_fixed_start() { ovs_up; }
ovs_fixed_prepare() { ovs_as fixed; }
ovs_fixed_pids() { ovs_pids; }
ovs_fixed_sockets() { ovs_sockets; }
ovs_fixed_stop() { ovs_down; }
