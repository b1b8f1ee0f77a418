//! Programs that do not know taut, in two guests: with the preload library through queue pairs, and
//! by TCP without it.
//!
//! Each guest has a shell for the host on a port of its VMCI device. Servers run in b, clients in
//! a. A sample by queue pairs counts only if the counters of both devices say that its bytes went
//! there: the library goes on by packets or by TCP if something is missing.

pub(super) mod echo;
pub(super) mod iperf3;
pub(super) mod latency;
pub(super) mod redis;
pub(super) mod write_loop;

use std::path::PathBuf;

use crate::figure::shown;
use crate::lab::{Contents, Lab};
use crate::machine::{Command, Text};
use crate::reason::{Context, Measured, NotMeasured, require};
use crate::sets::vc_g::guests::start_daemon;

/// Guests: name, context ID and address.
const GUESTS: [(&str, u32, &str); 2] = [("a", 1001, "10.82.0.1"), ("b", 1002, SERVER)];
/// Address of the guest with the servers.
const SERVER: &str = "10.82.0.2";

/// Map of both guests. Emulated guests need more than the usual 50 ms to accept a connection when
/// the machine is busy.
const MAP: &str = "10.82.0.1:* -> cid 1001
10.82.0.2:* -> cid 1002
listen *
rings on
patience 5000 ms
";
/// Map of programs that look at a queue pair before they sleep.
const POLLED_MAP: &str = "/tmp/polled.map";

/// What both guests run: a shell for the host.
const SCRIPT: &str = "socat VSOCK-LISTEN:5000,fork,reuseaddr EXEC:sh\n";

/// Size of the memory for queue pairs, unless a row says otherwise: the least one with the longest
/// rings.
pub(super) const QUEUE_PAIRS: &str = "64MiB";

/// Share of a sample's bytes that have to go through queue pairs. The other ones are bytes before
/// the first wait of a connection.
const BY_RINGS: f64 = 0.9;

/// How a program and its server exchange bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// TCP through the vSwitch, without the library.
    Tcp,
    /// Queue pairs; a call that waits sleeps at once.
    Rings,
    /// Queue pairs; a call that waits looks for up to 50 µs before it sleeps.
    Polled,
}

impl Way {
    /// Returns the way of a cell of rounds, which is its name.
    pub(super) fn of(cell: &str) -> Self {
        match cell {
            "rings" => Self::Rings,
            "polled" => Self::Polled,
            _ => Self::Tcp,
        }
    }

    /// Variables before a command in a guest.
    fn variables(self) -> String {
        let library = "LD_PRELOAD=/usr/local/lib/libtaut_vmci.so ";
        match self {
            Self::Tcp => String::new(),
            Self::Rings => library.to_owned(),
            Self::Polled => format!("TAUT_VMCI_MAP={POLLED_MAP} {library}"),
        }
    }

    /// Port of the server of this way, of a program whose first server has port `first`.
    const fn port(self, first: u16) -> u16 {
        match self {
            Self::Tcp => first,
            Self::Rings => first + 1,
            Self::Polled => first + 2,
        }
    }
}

/// Starts a daemon with guests a and b that run an image with these programs and have so much
/// memory for queue pairs.
pub(super) fn start(lab: &mut Lab, image: &str, queue_pairs: &str, programs: &[PathBuf]) -> Measured<()> {
    let mut all = vec![lab.tool("socat")?];
    all.extend_from_slice(programs);
    let contents = Contents { map: MAP, script: SCRIPT, programs: all };
    let boot = lab.extend_image(image, &format!("programs-{image}"), &contents)?;
    start_daemon(lab, "")?;
    for (name, cid, ip) in GUESTS {
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n");
        let vmci = format!("[vmci]\ncid = {cid}\ndomains = [\"goals\"]\nqueue_pairs = \"{queue_pairs}\"\n");
        lab.start_vm(name, &format!("memory = \"512MiB\"\n{boot}{nic}{vmci}"))?;
        // Linux makes the device of queue pairs while the guest already answers.
        let ready = format!(
            "until [ -c /dev/dax0.0 ]; do sleep 0.2; done\n\
             {{ cat /etc/taut/vmci.map; echo 'poll 50 us'; }} >{POLLED_MAP}"
        );
        until_it_works(lab, "the guest has a shell and queue pairs", |lab| {
            run_in(lab, name, "ready", &ready, 60).map(drop)
        })?;
    }
    Ok(())
}

/// Returns the command that runs a script in the shell of a guest, and has so many seconds.
pub(super) fn in_guest(
    lab: &mut Lab,
    guest: &str,
    name: &str,
    script: &str,
    limit: u64,
) -> Measured<Command> {
    let socket = lab.vm_show(guest)?.text("status.vmci.socket")?;
    let script = format!(
        "CONNECT 5000\n{{\n{script}\n}} </dev/null 2>/tmp/said.$$\nstatus=$?\n\
         [ $status = 0 ] || cat /tmp/said.$$\nrm /tmp/said.$$\necho \"status $status.\"\nexit\n"
    );
    let to = format!("UNIX-CONNECT:{socket}");
    // The shell ends by the script's last line. The end of this input must not end the connection.
    Ok(Command::new("socat").arg("-,ignoreeof").arg(to).input(&script).limit(limit).record(name))
}

/// Runs a script in the shell of a guest, and returns what it prints. Fails unless its last command
/// ends with status 0.
pub(super) fn run_in(lab: &mut Lab, guest: &str, name: &str, script: &str, limit: u64) -> Measured<Text> {
    let command = in_guest(lab, guest, name, script, limit)?;
    printed(&lab.run(&command)?.stdout).when(format!("`{name}` in guest {guest}"))
}

/// Returns what a script in a guest has printed.
pub(super) fn printed(output: &Text) -> Measured<Text> {
    output.section("OK ", "status 0.").map_err(|_| {
        let said = output.last_lines(4);
        NotMeasured::because(if said.is_empty() { "it printed nothing" } else { &said })
    })
}

/// Starts a server in guest b, for clients of one way.
fn serve(lab: &mut Lab, way: Way, name: &str, command: &str) -> Measured<()> {
    let script = format!("{}{command} >/tmp/{name}.log 2>&1 </dev/null &", way.variables());
    run_in(lab, "b", name, &format!("ulimit -n 8192\n{script}"), 60).map(drop)
}

/// Repeats something until it succeeds: servers of emulated guests need time until they listen.
pub(super) fn until_it_works(
    lab: &mut Lab,
    what: &str,
    mut attempt: impl FnMut(&mut Lab) -> Measured<()>,
) -> Measured<()> {
    let mut last = None;
    let outcome = lab.until(what, 90, |lab| {
        last = attempt(lab).err();
        lab.sleep(if last.is_some() { 0.5 } else { 0.0 })?;
        Ok(last.is_none())
    });
    outcome.map_err(|late| match last {
        Some(reason) => NotMeasured::because(format!("{late}: {reason}")),
        None => late,
    })
}

/// Takes a sample, which comes with the number of bytes that guest a has sent. Fails if the way is
/// by queue pairs and the bytes did not go there.
pub(super) fn sample<T>(
    lab: &mut Lab,
    way: Way,
    measure: impl FnOnce(&mut Lab) -> Measured<(T, f64)>,
) -> Measured<T> {
    let before = ring_bytes(lab)?;
    let (figure, bytes) = measure(lab)?;
    let after = ring_bytes(lab)?;
    let moved = (after[0] - before[0]).min(after[1] - before[1]);
    let is_wrong = way != Way::Tcp && moved < BY_RINGS * bytes;
    let what = format!("{} of {} bytes went through queue pairs of both guests", shown(moved), shown(bytes));
    require(!is_wrong || lab.machine().takes_for_granted(), what)?;
    Ok(figure)
}

/// Bytes that guest a has sent by rings, and those that b has received by rings, since they run.
fn ring_bytes(lab: &mut Lab) -> Measured<[f64; 2]> {
    let mut of =
        |guest: &str, counter: &str| lab.vm_show(guest)?.number(&format!("status.vmci.counters.{counter}"));
    Ok([of("a", "ring_tx_bytes")?, of("b", "ring_rx_bytes")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_prints_counts_only_with_status_0() {
        let of = |text: &str| printed(&Text::from(text));
        assert_eq!(of("OK 1025\n{}\nstatus 0.\n").unwrap().as_str(), "{}");
        let failed = of("OK 1025\nunable to connect\nstatus 1.\n").unwrap_err();
        assert_eq!(failed.reason(), "OK 1025; unable to connect; status 1.");
        // The connection ended early, or the shell was not reached.
        for text in ["OK 1025\n{}\n", "OK 1025\n", "", "status 0.\n"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!(of("").unwrap_err().reason(), "it printed nothing");
    }

    #[test]
    fn each_way_has_a_server_of_its_own() {
        let ports = [Way::Tcp, Way::Rings, Way::Polled].map(|way| way.port(7000));
        assert_eq!(ports, [7000, 7001, 7002]);
        assert_eq!(["tcp", "rings", "polled"].map(Way::of), [Way::Tcp, Way::Rings, Way::Polled]);
        assert!(Way::Polled.variables().contains("TAUT_VMCI_MAP=/tmp/polled.map LD_PRELOAD="));
    }
}
