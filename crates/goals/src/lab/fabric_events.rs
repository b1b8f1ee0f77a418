//! Upgrades and kills of the fabric under VMCI streams of two VMs.

use super::Lab;
use crate::machine::{Command, Doc};
use crate::reason::{Measured, require};

impl Lab<'_> {
    /// Runs a program that has five streams from VM a to VM b while the fabric is upgraded
    /// (`mode` is `upgrade`) or killed (`kill`), and returns what it found. Fails unless all of
    /// these `times` happened.
    pub fn under_streams(&mut self, mode: &str, times: u32) -> Measured<Doc> {
        self.under_streams_with(mode, times, "")
    }

    /// Like [`Self::under_streams`], with both ends of each stream attached to queue pairs.
    pub fn under_attached_streams(&mut self, mode: &str, times: u32) -> Measured<Doc> {
        self.under_streams_with(mode, times, "--rings")
    }

    fn under_streams_with(&mut self, mode: &str, times: u32, words: &str) -> Measured<Doc> {
        let program = self.example("taut-bench", "socket_restart")?;
        let taut = self.program("taut").display().to_string();
        // The process is looked up each time, because it is another one then.
        let find = "sed -n 's/.*\"fabric_pid\": *\\([0-9]*\\).*/\\1/p'";
        let event = match mode {
            "upgrade" => format!("'{taut}' daemon upgrade-fabric"),
            _ => format!("kill -9 $('{taut}' -o json daemon show | {find})"),
        };
        let [from, to] = [self.vm_agent("a")?, self.vm_agent("b")?];
        let command = Command::new(program)
            .args([&from, &to, "--mode", mode, "--events", &times.to_string(), "--command", &event])
            .args(words)
            .preferred()
            .limit(3600)
            .record(mode);
        // The program's command reaches the daemon by this variable.
        let socket = self.daemon()?.socket;
        let found = self.run(&command.env("TAUT_SOCKET", socket))?.stdout.json()?;
        let done = found.number(&format!("{mode}s"))?;
        let is_granted = self.machine.takes_for_granted();
        require(done >= f64::from(times) || is_granted, format!("{done} of {times} {mode}s happened"))?;
        Ok(found)
    }
}
