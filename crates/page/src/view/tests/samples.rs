//! Answers of the API, as JSON.

use serde::de::DeserializeOwned;
use taut_api::role::Role;

use crate::frame::Frame;

pub(super) fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

pub(super) fn frame(role: Role) -> Frame {
    Frame {
        hostname: "esx1".to_owned(),
        version: "0.1.0".to_owned(),
        user: "user 1000".to_owned(),
        role: Some(role),
        can_log_out: false,
    }
}

pub(super) const VMS: &str = r#"[
  {"name": "web1", "revision": 3,
   "spec": {"vcpus": 1, "memory": "512MiB", "power": "on", "nic": [
     {"portgroup": "web", "shaping": {"to_guest": {"average": "10Mbit", "peak": "20Mbit", "burst": "1MiB"}}},
     {"portgroup": "lab", "model": "e1000"}]},
   "status": {"phase": "running", "pid": 4711, "accelerator": "kvm", "nics": [
     {"mac": "02:00:00:00:00:07", "portgroup": "web", "port": 0, "link": "up", "coalescing": "rbc:4000", "lro": true,
      "shaping": {"to_switch": {"origin": "portgroup"},
        "to_guest": {"shape": {"average": "10Mbit", "peak": "20Mbit", "burst": "1MiB"}, "origin": "own"}}},
     {"mac": "02:00:00:00:00:08", "portgroup": "lab", "port": 1, "link": "down", "lro": false,
      "reason": "the guest's driver has not started its rings"}]}},
  {"name": "db1", "revision": 4,
   "spec": {"vcpus": 2, "memory": "2GiB", "power": "on", "latency_sensitivity": "high",
     "memory_reservation": "full", "cpu": {"reservation": "full"}, "nic": [{"portgroup": "web"}],
     "disk": {"path": "/vms/db1 <a>.qcow2", "format": "qcow2"}},
   "status": {"phase": "running", "pid": 4712, "owner": 1000, "console_socket": "/run/taut/vms/db1/console.sock",
     "size": {"vcpus": 1, "memory": "2GiB"},
     "nics": [{"mac": "02:00:00:00:00:09", "portgroup": "web", "port": 2, "link": "broken", "lro": false,
       "reason": "descriptor 7 is out of range"}],
     "latency": {"state": "partly", "cpus": [2, 3], "idle": [1], "missing": ["no huge pages are free"],
       "decisions": [{"decision": "vCPU 0 owns pCPU 2", "rule": "exclusive access to physical resources"},
         {"decision": "memory is locked", "rule": "full memory reservation", "restart": true}]},
     "vmci": {"cid": 5, "port": 3, "link": "up", "socket": "/run/taut/vms/db1/vmci.sock",
       "counters": {"connections": 1, "opened": 9, "rx_bytes": 123456, "refused": 2}}}}
]"#;

pub(super) const TIMES: &str = r#"[
  {"name": "web1", "foreign": false, "pid": 4711, "covered_ms": 300000, "to_ms": 1795902843000,
   "vcpus": [{"vcpu": 0, "run_percent": 31.5, "ready_percent": 0.25}],
   "run_percent": 31.5, "ready_percent": 0.25, "others_percent": 1.5},
  {"name": "db1", "foreign": false, "pid": 4712, "covered_ms": 300000, "to_ms": 1795902843000,
   "vcpus": [{"vcpu": 0, "run_percent": 80.0, "ready_percent": 9.5}, {"vcpu": 1, "run_percent": 10.0, "ready_percent": 0.5}],
   "run_percent": 90.0, "ready_percent": 10.0, "others_percent": 0.0},
  {"name": "<script>alert(1)</script>", "foreign": true, "pid": 99, "covered_ms": 61000, "to_ms": 1795902843000,
   "vcpus": [], "run_percent": 3.0, "ready_percent": 0.001, "others_percent": 0.0}
]"#;

pub(super) const PORTS: &str = r#"[
  {"port": 0, "owner": "vm/web1/nic0", "mac": "02:00:00:00:00:07", "vswitch": "prod", "portgroup": "web", "link": "up",
   "coalescing": "rbc:4000", "shaping": {"to_switch": {"origin": "portgroup"},
     "to_guest": {"shape": {"average": "10Mbit", "peak": "20Mbit", "burst": "1MiB"}, "origin": "own"}},
   "counters": {"rx_frames": 2000000, "rx_bytes": 2000000000, "tx_frames": 1000, "tx_bytes": 64000, "rx_queues": 1,
     "rx_drops": [["ring-full", 70], ["shaper-full", 12345]], "tx_drops": [["forged-transmit", 3]]}},
  {"port": 2, "owner": "vm/db1/nic0", "mac": "02:00:00:00:00:09", "vswitch": "prod", "portgroup": "web", "link": "broken",
   "reason": "descriptor 7 is out of range", "counters": {}},
  {"port": 4, "owner": "uplink/eth1", "vswitch": "prod", "link": "up", "counters": {}}
]"#;

pub(super) const STATISTICS: &str = r#"[
  {"owner": "vm/web1/nic0", "port": 0, "vswitch": "prod", "portgroup": "web", "covered_ms": 300000,
   "to_ms": 1795902843000,
   "rates": {"rx_frames_per_s": 1000.0, "rx_bits_per_s": 9876543.2, "rx_multicast_per_s": 0.5, "tx_frames_per_s": 3.3,
     "tx_bits_per_s": 1700.0, "rx_drops_percent": 4.0, "tx_drops_percent": 0.0, "rx_waits_per_s": 0.0,
     "interrupts_per_s": 800.0, "kicks_per_s": 3.0},
   "counted": {"rx_frames": 300000, "rx_bytes": 370370370, "tx_frames": 1000, "tx_bytes": 63750,
     "rx_drops": [["shaper-full", 12345]]}}
]"#;

pub(super) const VSWITCHES: &str = r#"[
  {"name": "prod", "revision": 1, "spec": {"teaming": {"standby": ["eth2"]}}, "status": {"ports": 2}},
  {"name": "private", "revision": 2, "spec": {}, "status": {"ports": 0}}
]"#;

pub(super) const PORTGROUPS: &str = r#"[
  {"name": "empty", "revision": 1, "spec": {"vswitch": "private"}, "status": {"ports": 0}},
  {"name": "lab", "revision": 1, "spec": {"vswitch": "prod", "vlan": "10-20,30"}, "status": {"ports": 0}},
  {"name": "web", "revision": 1, "spec": {"vswitch": "prod", "vlan": 10}, "status": {"ports": 2}}
]"#;

pub(super) const UPLINKS: &str = r#"[
  {"name": "eth1", "revision": 1, "spec": {"vswitch": "prod"},
   "status": {"port": 4, "attached": true, "link": "up", "mac": "00:11:22:33:44:55", "speed_mbit": 10000, "mtu": 1500}},
  {"name": "eth2", "revision": 1, "spec": {"vswitch": "prod"},
   "status": {"port": 5, "attached": true, "link": "down", "reason": "no carrier", "lost": 1234}}
]"#;

pub(super) const HOST: &str = r#"{
  "hostname": "esx1", "kernel": "6.12.48", "os": "Debian GNU/Linux 13", "cpu_model": "A CPU",
  "cpus": [{"id": 0, "package": 0, "core": 0, "node": 0, "llc": 0}, {"id": 1, "package": 0, "core": 1, "node": 0, "llc": 0},
    {"id": 2, "package": 0, "core": 1, "node": 0, "llc": 0}, {"id": 3, "package": 0, "core": 2, "node": 0, "llc": 0}],
  "nodes": [{"id": 0, "memory": "16GiB"}], "memory_total": "16GiB", "memory_available": "9GiB",
  "accelerator": {"kind": "kvm", "why": "a guest ran"}, "qemu": {"path": "/usr/bin/qemu-system-x86_64", "version": "10.0.3"}
}"#;

pub(super) const TUNE: &str = r#"{
  "mode": "dense", "interval_s": 60, "threshold": "1n 2n 50", "pcpus": 4,
  "limits": {"vms": 4, "vcpus": 8, "utilisation": 50},
  "state": {"on": false, "test": {"at_ms": 1795902843000, "limits": {"vms": 4, "vcpus": 8, "utilisation": 50},
    "reading": {"pcpus": 4, "vms": 2, "vcpus": 9, "utilisation": 61}}},
  "held": [false, true, true], "governs": [], "leaves_alone": ["vm/db1/nic0"]
}"#;

pub(super) const DAEMON: &str = r#"{
  "version": "0.1.0", "pid": 100, "fabric_pid": 101, "fabric_version": "0.1.0", "fabric_starts": 1, "revision": 9,
  "reconciled": 8, "state_dir": "/var/lib/taut", "caller": {"uid": 1000, "role": "view"},
  "workers": [{"worker": 0, "cpu": 0, "mode": "adaptive",
    "counters": {"bursts": 1000000, "empty_rounds": 77, "sleeps": 12, "busy_ns": 61000000000}}]
}"#;

pub(super) const CONNECTIONS: &str = r#"[
  {"from": {"vm": "web1", "cid": 4, "port": 1024, "carrier": "packets"},
   "to": {"cid": 2, "port": 80, "carrier": "socket"}, "kind": "stream"}
]"#;

pub(super) const EVENTS: &str = r#"[
  {"seq": 1, "at_ms": 1795902840000, "level": "info", "subject": "vm/web1", "kind": "vm.started", "message": "started"},
  {"seq": 2, "at_ms": 1795902843000, "level": "error", "subject": "vm/<b>", "kind": "vm.died", "message": "<img src=x onerror=alert(1)>"}
]"#;

pub(super) const AUDIT: &str = r#"[
  {"seq": 1, "at_ms": 1795902840000, "caller": {"uid": 0, "gid": 0, "loginuid": 1000, "pid": 7, "program": "/usr/bin/taut", "role": "admin"},
   "method": "PATCH", "path": "/v1/vms/web1",
   "outcome": {"at_ms": 1795902840001, "status": 200, "document": {"subject": "vm/web1", "revision": 9}}},
  {"seq": 2, "at_ms": 1795902843000, "caller": {"uid": 1001, "gid": 1001}, "method": "DELETE", "path": "/v1/vms/<b>",
   "outcome": {"at_ms": 1795902843001, "status": 403, "error": "needs the role `define`"}}
]"#;

pub(super) const SERIES: &str = r#"{
  "subject": "port", "name": "vm/web1/nic0", "from_ms": 1795902540000, "to_ms": 1795902840000, "step_ms": 150000,
  "columns": ["rx_bits_per_s", "tx_bits_per_s"],
  "points": [{"to_ms": 1795902540000, "covered_ms": 150000, "values": [1e6, 0.0]},
    {"to_ms": 1795902690000, "covered_ms": 150000, "values": [3e6, null]},
    {"to_ms": 1795902840000, "covered_ms": 150000, "values": [2e6, 5e5]}]
}"#;

pub(super) const VM_SERIES: &str = r#"{
  "subject": "vm", "name": "db1", "from_ms": 1795902540000, "to_ms": 1795902840000, "step_ms": 1000,
  "columns": ["run_percent", "ready_percent", "others_percent"],
  "points": [{"to_ms": 1795902540000, "covered_ms": 1000, "values": [80.0, 0.0, 0.0]},
    {"to_ms": 1795902541000, "covered_ms": 1000, "values": [90.0, 45.0, 0.0]},
    {"to_ms": 1795902542000, "covered_ms": 1000, "values": [85.0, 4.0, 0.0]}]
}"#;

pub(super) const CHECKS: &str = r#"{
  "subject": "host", "profile": "latency", "summary": {"ok": 1, "warn": 0, "bad": 1, "unknown": 1},
  "lines": [
    {"id": "idle.c1e", "what": "C1E", "found": "on", "wanted": "off", "why": "a", "effect": "b", "takes_effect": "bios",
     "verdict": "bad"},
    {"id": "cpu.bare-metal", "what": "machine", "found": "a VM <b>", "wanted": "none", "why": "a", "effect": "b",
     "takes_effect": "host-boot", "verdict": "unknown"},
    {"id": "memory.ksm", "what": "KSM", "found": "0", "wanted": "0", "why": "a", "effect": "b", "takes_effect": "live",
     "verdict": "ok", "changes": []}]
}"#;
