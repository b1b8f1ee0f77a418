//! Daemons and guests with VMCI devices, all with priority over other programs of this machine.

use crate::lab::{DaemonOptions, Lab};
use crate::machine::Doc;
use crate::reason::Measured;

/// Largest packet with its header, as one receive buffer holds it.
pub(in crate::sets) const BUFFER: &str = "buffer=65580";

/// Domain that guests share, unless a row says otherwise.
pub(super) const DOMAIN: &str = "goals";

/// Starts a daemon with the port group `lan`. `words` are its options.
pub(in crate::sets) fn start_daemon(lab: &mut Lab, words: &str) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().args(words).preferred()).map(drop)
}

/// Starts a daemon whose microguests have VMCI devices with these options.
pub(in crate::sets) fn start_daemon_of_micros(lab: &mut Lab, device: &str) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().env("TAUT_MICRO_VMCI", device).preferred()).map(drop)
}

/// Starts microguests a and b.
pub(in crate::sets) fn two_micros(lab: &mut Lab) -> Measured<()> {
    micro(lab, "a", "10.82.0.1", DOMAIN)?;
    micro(lab, "b", "10.82.0.2", DOMAIN)
}

/// Starts a microguest with a VMCI device.
pub(in crate::sets) fn micro(lab: &mut Lab, name: &str, ip: &str, domain: &str) -> Measured<()> {
    let file = format!("kind = \"micro\"\nmemory = \"64MiB\"\n{}", devices(ip, domain));
    lab.start_vm(name, &file)?;
    let pid = lab.vm_pid(name)?;
    lab.prefer(pid);
    Ok(())
}

/// Boots a VM with a VMCI device directly.
pub(super) fn vm(lab: &mut Lab, name: &str, image: &str, ip: &str) -> Measured<()> {
    let boot = lab.boot_of(image)?;
    lab.start_vm(name, &format!("memory = \"192MiB\"\n{boot}{}", devices(ip, DOMAIN)))
}

fn devices(ip: &str, domain: &str) -> String {
    format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n[vmci]\ndomains = [\"{domain}\"]\n")
}

/// Runs `taut bench vsock` with priority.
pub(in crate::sets) fn bench(lab: &mut Lab, words: &str) -> Measured<Doc> {
    let command = lab.bench_command(format!("vsock {words}")).preferred();
    lab.bench_by(&command)
}
