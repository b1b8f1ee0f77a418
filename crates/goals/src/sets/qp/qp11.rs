//! QP11: programs with the preload library where there are no queue pairs for them. Their
//! connections go by the next best way: packets, or TCP if the peer has no VMCI listener.
//!
//! Each case makes connections from a guest to the guest `server`, moves bytes in both directions
//! of all of them at once, compares every byte, and keeps them open. Meanwhile the row looks at the
//! list of connections and at what the library has logged.

use super::shells::{Connections, Guest, PRELOADED, image, shell, tcp_transfer};
use crate::figure::{Bound, shown};
use crate::lab::{DaemonOptions, Lab, NEWEST, OLDEST};
use crate::machine::Text;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const BOUNDS: &[Bound] = &[
    Bound::Exactly(0.0, "connections that are not byte-exact"),
    Bound::Exactly(0.0, "ends that go another way"),
    Bound::Exactly(0.0, "reasons missing in the log"),
];

pub(super) const ROW: Row = Row {
    id: "QP11",
    what: "fallback of programs with the preload library, byte-exact, named in the log and in the list of connections",
    on: "QEMU guests with Debian's newest kernel, and one with the oldest whose drivers are not loaded",
    goals: &[
        Goal::new("QP11-rings", BOUNDS),
        Goal::new("QP11-no-device", BOUNDS),
        Goal::new("QP11-no-driver", BOUNDS),
        Goal::new("QP11-not-permitted", BOUNDS),
        Goal::new("QP11-group", BOUNDS),
        Goal::new("QP11-full", BOUNDS),
        Goal::new("QP11-free-again", BOUNDS),
        Goal::new("QP11-peer-packets", BOUNDS),
        Goal::new("QP11-peer-vsock", BOUNDS),
        Goal::new("QP11-peer-tcp", BOUNDS),
    ],
    run,
};

/// Context ID of the server.
const SERVER: u32 = 103;
/// Context IDs of clients: with queue pairs, without a device, without a driver.
const CLIENTS: [u32; 3] = [104, 105, 106];
/// User and group that own nothing.
const NOBODY: u32 = 1000;
/// Channels of a region of 16 MiB, and connections beyond them.
const CHANNELS: u32 = 31;
const BEYOND: u32 = 9;

/// Ports of the server: with rings, without rings, a plain `AF_VSOCK` program, without the library.
const RINGS: u32 = 7000;
const PACKETS: u32 = 7001;
const PLAIN: u32 = 7002;
const WITHOUT: u32 = 7003;

/// What one case does, and what has to come of it.
struct Case {
    goal: &'static str,
    /// The client.
    vm: &'static str,
    /// Program that runs the client, with its words.
    by: String,
    port: u32,
    connections: u32,
    /// Ends of the client and of the server that are attached to rings, and those that use packets.
    client: [u32; 2],
    server: [u32; 2],
    /// Part of the lines of the log that give the reason, and their number.
    reason: (&'static str, u32),
}

impl Case {
    fn new(goal: &'static str, vm: &'static str) -> Self {
        Self {
            goal,
            vm,
            by: String::new(),
            port: RINGS,
            connections: 1,
            client: [0, 1],
            server: [1, 0],
            reason: ("", 0),
        }
    }
}

fn cases() -> Vec<Case> {
    let as_nobody = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
    let all = CHANNELS + BEYOND;
    vec![
        Case { client: [1, 0], reason: (": in channel ", 1), ..Case::new("QP11-rings", "client") },
        Case {
            reason: ("no queue pairs: there is no device with memory for queue pairs", 1),
            ..Case::new("QP11-no-device", "bare")
        },
        Case {
            reason: ("no queue pairs: the kernel has no driver for the memory for queue pairs", 1),
            ..Case::new("QP11-no-driver", "driverless")
        },
        // The program that changes the user has the library, too, and may open the device.
        Case {
            by: as_nobody.clone(),
            reason: ("no queue pairs: /dev/dax0.0 may not be opened", 1),
            ..Case::new("QP11-not-permitted", "client")
        },
        Case {
            by: as_nobody,
            client: [1, 0],
            reason: (": in channel ", 1),
            ..Case::new("QP11-group", "client")
        },
        Case {
            connections: all,
            client: [CHANNELS, BEYOND],
            server: [all, 0],
            reason: ("by packets, since the host declined: all channels of this VM's memory", BEYOND),
            ..Case::new("QP11-full", "client")
        },
        Case { client: [1, 0], reason: (": in channel ", 1), ..Case::new("QP11-free-again", "client") },
        Case {
            port: PACKETS,
            client: [1, 0],
            server: [0, 1],
            reason: (": in channel ", 1),
            ..Case::new("QP11-peer-packets", "client")
        },
        Case {
            port: PLAIN,
            client: [1, 0],
            server: [0, 1],
            reason: (": in channel ", 1),
            ..Case::new("QP11-peer-vsock", "client")
        },
        // Nobody listens on the VMCI port, so there is no VMCI connection at all.
        Case {
            port: WITHOUT,
            client: [0, 0],
            server: [0, 0],
            reason: (": by TCP, since VMCI fails: cid 103 port 7003: ", 1),
            ..Case::new("QP11-peer-tcp", "client")
        },
    ]
}

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let bytes: u64 = lab.pick(16 << 20, 1 << 20);
    start(lab)?;
    for case in cases() {
        if case.goal == "QP11-group" {
            let give = format!("chgrp {NOBODY} /dev/dax0.0 && chmod 660 /dev/dax0.0");
            shell(lab, case.vm, &give)?;
        }
        let outcome = measure(lab, results, &case, bytes);
        results.settle(&[case.goal], outcome);
    }
    Ok(())
}

/// Starts all guests and the programs of the server.
fn start(lab: &mut Lab) -> Measured<()> {
    let programs = [tcp_transfer(lab)?];
    lab.start_lan(DaemonOptions::default())?;
    let [newest, oldest] = [NEWEST, OLDEST].map(|base| image(lab, base, &map(), &programs));
    let (newest, oldest) = (newest?, oldest?);
    let rings = "domains = [\"goals\"]\nqueue_pairs = \"16MiB\"";
    let lines = "cmdline = \"module_blacklist=dax_pmem,device_dax\"\n";
    let driverless = oldest + lines;
    let vm = |name, cid, boot, vmci| Guest { name, cid, boot, vmci };
    let server = vm("server", SERVER, newest.as_str(), "domains = [\"goals\"]\nqueue_pairs = \"128MiB\"");
    let client = vm("client", CLIENTS[0], &newest, rings);
    for guest in [&server, &client] {
        guest.start(lab)?;
        guest.has_queue_pairs(lab)?;
    }
    vm("bare", CLIENTS[1], &newest, "domains = [\"goals\"]").start(lab)?;
    vm("driverless", CLIENTS[2], &driverless, rings).start(lab)?;
    serve(lab)
}

/// The map of all guests. The addresses are those of their vNICs.
fn map() -> String {
    let mut map = format!("10.82.0.{SERVER}:* -> cid {SERVER}\n");
    for cid in CLIENTS {
        map += &format!("10.82.0.{cid}:* -> cid {cid}\n");
    }
    map + "listen *\nrings on\npatience 5000 ms\n"
}

fn serve(lab: &mut Lab) -> Measured<()> {
    let mut lines = String::new();
    for (port, by) in [
        (RINGS, PRELOADED.to_owned()),
        (PACKETS, format!("TAUT_VMCI_RINGS=0 {PRELOADED}")),
        (WITHOUT, String::new()),
    ] {
        lines += &format!("{by} tcp_transfer serve 0.0.0.0:{port} >out-{port} 2>said-{port} &\n");
    }
    lines += &format!(
        "socat -t 600 VSOCK-LISTEN:{PLAIN},fork,reuseaddr TCP:127.0.0.1:{WITHOUT} >/dev/null 2>&1 &\n"
    );
    for port in [RINGS, PACKETS, WITHOUT] {
        lines += &format!("until grep -q serves out-{port}; do sleep 0.2; done\n");
    }
    // The listeners with the library take VMCI connections from their first wait on.
    lines += "sleep 2\n";
    shell(lab, "server", &lines).map(drop)
}

fn measure(lab: &mut Lab, results: &mut Results, case: &Case, bytes: u64) -> Measured<()> {
    let Case { goal, vm, by, port, connections, .. } = case;
    let lines = format!(
        "rm -f go out\n{PRELOADED} {by} tcp_transfer connect 10.82.0.{SERVER}:{port} --bytes {bytes} \
         --connections {connections} --hold /tmp/go >out 2>said &\n\
         until grep -q holding out; do sleep 0.2; done\ncat out\necho 'log:'\ncat said"
    );
    let said = shell(lab, vm, &lines)?;
    let list = Connections::list(lab)?;
    shell(lab, vm, ">go; until grep -q transfers: out; do sleep 0.2; done")?;
    let exact = count(&said, "exact: ", &format!("{bytes} bytes each way"));
    let (mut other, mut found) = (0.0, Vec::new());
    for (vm, wanted) in [(*vm, case.client), ("server", case.server)] {
        for (carrier, wanted) in ["ring", "packets"].into_iter().zip(wanted) {
            let ends = list.ends(vm, *port, carrier)?;
            other += (ends - f64::from(wanted)).abs();
            if ends > 0.0 {
                found.push(format!("{vm} {} by {carrier}", shown(ends)));
            }
        }
    }
    let (reason, times) = case.reason;
    let lines = count(&said, reason, "");
    let found = if found.is_empty() { "no VMCI connection".to_owned() } else { found.join(", ") };
    let detail = format!(
        "{} MiB each way; {found}; the log says {} times `{}`",
        shown(bytes as f64 / 1_048_576.0),
        shown(lines),
        reason.trim_matches([':', ' ']),
    );
    let missing = (lines - f64::from(times)).abs();
    results.record(goal, [f64::from(*connections) - exact, other, missing], detail);
    Ok(())
}

/// Number of lines that have one part before the other one.
fn count(text: &Text, before: &str, after: &str) -> f64 {
    text.all_between(before, after).len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_by_line() {
        let said = Text::from(
            "exact: 16 bytes each way, seed 1\nwrong: byte 5, seed 2\nlog:\nlibtaut_vmci: descriptor 5: in channel 3\n",
        );
        assert_eq!(count(&said, "exact: ", "16 bytes each way") as u32, 1);
        assert_eq!(count(&said, "exact: ", "17 bytes each way") as u32, 0);
        assert_eq!(count(&said, ": in channel ", "") as u32, 1);
    }

    #[test]
    fn every_case_has_a_goal_and_all_ends() {
        let cases = cases();
        assert_eq!(cases.len(), ROW.goals.len());
        for case in &cases {
            assert!(ROW.goals.iter().any(|goal| goal.id == case.goal));
            let by_tcp = case.port == WITHOUT;
            for ends in [case.client, case.server] {
                assert_eq!(ends[0] + ends[1], if by_tcp { 0 } else { case.connections }, "{}", case.goal);
            }
        }
    }
}
