//! Guests with a shell that the host uses through their VMCI sockets. They run programs of this
//! repository, with the preload library or without.

use std::path::PathBuf;

use crate::lab::Lab;
use crate::machine::{Command, Doc, Text};
use crate::reason::{Measured, require};

/// VMCI port of the shell.
const PORT: u32 = 900;
/// Turns the preload library on.
pub(super) const LIBRARY: &str = "LD_PRELOAD=/usr/local/lib/libtaut_vmci.so";
/// Turns the preload library and its log on.
pub(super) const PRELOADED: &str = "TAUT_VMCI_LOG=1 LD_PRELOAD=/usr/local/lib/libtaut_vmci.so";

/// Serves the shell once the guest has its devices.
const SCRIPT: &str = "exec socat -t 7200 VSOCK-LISTEN:900,fork,reuseaddr EXEC:/bin/sh\n";

/// Programs of this machine that guests get.
const PROGRAMS: [&str; 6] = ["socat", "setpriv", "timeout", "chgrp", "chmod", "rm"];

/// Makes a guest image with the shell, a map, and programs. Returns the lines of a VM's file that
/// boot it.
pub(super) fn image(lab: &mut Lab, base: &str, map: &str, programs: &[PathBuf]) -> Measured<String> {
    lab.boot_of(base)?;
    let folder = lab.folder().to_owned();
    let (map_file, script) = (folder.join("guest.map"), folder.join("guest.script"));
    lab.machine().write(&map_file, map)?;
    lab.machine().write(&script, SCRIPT)?;
    let out = folder.join(base);
    let tool = lab.setup().checkout.join("tools/make-redis.sh");
    let library = lab.program("libtaut_vmci.so");
    let mut command = lab.in_checkout(tool).arg(&lab.setup().images).arg(base).arg(library);
    command = command.arg(map_file).arg(script).arg(&out);
    for name in PROGRAMS {
        let found = lab.machine().program(name);
        require(found.is_some(), format!("{name} is not installed"))?;
        command = found.iter().fold(command, Command::arg);
    }
    lab.run(&programs.iter().fold(command, Command::arg))?;
    Ok(format!("[boot]\nkernel = \"{0}/vmlinuz\"\ninitrd = \"{0}/initrd\"\n", out.display()))
}

/// A VM with a shell.
pub(super) struct Guest<'a> {
    pub(super) name: &'a str,
    /// Context ID.
    pub(super) cid: u32,
    /// Lines of its file that boot it.
    pub(super) boot: &'a str,
    /// Last lines of its table `[vmci]`.
    pub(super) vmci: &'a str,
}

impl Guest<'_> {
    /// IP address on the port group `lan`.
    pub(super) fn ip(&self) -> String {
        format!("10.82.0.{}", self.cid)
    }

    /// Starts the VM, and waits until its shell answers.
    pub(super) fn start(&self, lab: &mut Lab) -> Measured<()> {
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{}/24\"\n", self.ip());
        let vmci = format!("[vmci]\ncid = {}\n{}\n", self.cid, self.vmci);
        lab.start_vm(self.name, &format!("memory = \"512MiB\"\n{}{nic}{vmci}", self.boot))?;
        let what = format!("the shell of {} answers", self.name);
        lab.until(&what, 120, |lab| {
            let answers = shell(lab, self.name, "true").is_ok();
            lab.sleep(if answers { 0.0 } else { 0.5 })?;
            Ok(answers)
        })
    }

    /// Waits until Linux has made the device of queue pairs.
    pub(super) fn has_queue_pairs(&self, lab: &mut Lab) -> Measured<()> {
        let wait = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do [ -c /dev/dax0.0 ] && break; sleep 5; done\n";
        shell(lab, self.name, &format!("{wait}[ -c /dev/dax0.0 ]")).map(drop)
    }
}

/// Time that lines of the shell get, in seconds.
const LIMIT: u64 = 600;

/// Runs lines of the shell in a guest, and returns what they print. Fails unless the last one
/// succeeds.
pub(super) fn shell(lab: &mut Lab, vm: &str, lines: &str) -> Measured<Text> {
    shell_within(lab, vm, LIMIT, lines)
}

/// The same for lines that get so many seconds.
pub(super) fn shell_within(lab: &mut Lab, vm: &str, seconds: u64, lines: &str) -> Measured<Text> {
    let socket = lab.vm_show(vm)?.text("status.vmci.socket")?;
    let input = format!("CONNECT {PORT}\ncd /tmp\n{lines}\necho \"shell: ended with $?.\"\n");
    let command = Command::new("socat").args(format!("-t {seconds} -")).arg(format!("UNIX-CONNECT:{socket}"));
    let ended = lab.run(&command.input(&input).limit(seconds).record(&format!("shell-{vm}")))?;
    let said = ended.stdout.last_lines(6);
    require(ended.stdout.contains("shell: ended with 0."), format!("{vm}: `{lines}` failed: {said}"))?;
    Ok(ended.stdout)
}

/// Connections of VMs as `taut vmci list --connections` shows them.
pub(super) struct Connections(Vec<Doc>);

impl Connections {
    pub(super) fn list(lab: &mut Lab) -> Measured<Self> {
        Ok(Self(lab.taut_json("vmci list --connections")?.list("")?))
    }

    /// Counts the ends of a VM on connections to a port, whose bytes go this way.
    pub(super) fn ends(&self, vm: &str, port: u32, carrier: &str) -> Measured<f64> {
        let mut count = 0.0;
        for connection in &self.0 {
            if connection.number("to.port")? as u32 != port {
                continue;
            }
            for end in ["from", "to"] {
                let end = connection.at(end)?;
                // The host's ends have no VM.
                if end.has("vm") && end.text("vm")? == vm && end.text("carrier")? == carrier {
                    count += 1.0;
                }
            }
        }
        Ok(count)
    }

    /// Counts the connections to a port that go by rings at both ends.
    pub(super) fn attached(&self, port: u32) -> Measured<u32> {
        let mut count = 0;
        for connection in &self.0 {
            if connection.number("to.port")? as u32 != port {
                continue;
            }
            let by_rings = [connection.text("from.carrier")?, connection.text("to.carrier")?];
            count += u32::from(by_rings.iter().all(|carrier| carrier == "ring"));
        }
        Ok(count)
    }
}

/// Program that transfers bytes and compares them.
pub(super) fn tcp_transfer(lab: &mut Lab) -> Measured<PathBuf> {
    lab.example("taut-preload", "tcp_transfer")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ends_are_counted_by_vm_port_and_way() {
        let end = |vm: &str, port: u32, carrier: &str| json!({"vm": vm, "cid": 3, "port": port, "carrier": carrier});
        let host = json!({"cid": 2, "port": 1, "carrier": "socket"});
        let connections = Connections(vec![
            Doc::from(
                json!({"from": end("a", 1000, "ring"), "to": end("b", 7000, "packets"), "kind": "stream"}),
            ),
            Doc::from(
                json!({"from": end("a", 1001, "packets"), "to": end("b", 7000, "packets"), "kind": "stream"}),
            ),
            Doc::from(
                json!({"from": end("a", 1002, "ring"), "to": end("b", 7001, "ring"), "kind": "stream"}),
            ),
            Doc::from(json!({"from": host, "to": end("a", 7000, "packets"), "kind": "stream"})),
        ]);
        let count = |vm, port, carrier| connections.ends(vm, port, carrier).unwrap() as u32;
        assert_eq!(
            [count("a", 7000, "ring"), count("a", 7000, "packets"), count("b", 7000, "packets")],
            [1, 2, 2]
        );
        assert_eq!([count("b", 7001, "ring"), count("c", 7000, "ring")], [1, 0]);
        assert_eq!([7000, 7001, 7002].map(|port| connections.attached(port).unwrap()), [0, 1, 0]);
        let broken = Connections(vec![Doc::from(json!({"from": {}, "to": {"port": 7000}}))]);
        assert!(broken.ends("a", 7000, "ring").is_ok_and(|count| count < 1.0));
        assert!(Connections(vec![Doc::from(json!({}))]).ends("a", 7000, "ring").is_err());
    }
}
