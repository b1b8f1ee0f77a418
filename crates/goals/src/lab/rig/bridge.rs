//! A Linux bridge with two TAP devices.

use super::Rig;
use crate::lab::Lab;
use crate::machine::{Command, Job};
use crate::reason::Measured;

const BRIDGE: &str = "taut-rig-br";

impl Rig {
    pub(super) fn start_bridge(&mut self, lab: &mut Lab) -> Measured<()> {
        if self.has_bridge {
            return Ok(());
        }
        let ip = |words: &str| Command::new("ip").args(words);
        lab.owe(ip(&format!("link del {BRIDGE}")))?;
        lab.run(&ip(&format!("link add {BRIDGE} type bridge mcast_snooping 0")))?;
        self.has_bridge = true;
        lab.run(&ip(&format!("link set {BRIDGE} up"))).map(drop)
    }

    /// Puts the TAP devices of a generator that runs onto the bridge. They appear with the
    /// generator and go with it.
    pub(super) fn join_bridge(lab: &mut Lab, generator: &Job) -> Measured<()> {
        lab.until("the generator has made its TAP devices", 10, |lab| {
            let is_there = lab.machine().exists(std::path::Path::new("/sys/class/net/taut-rig1"));
            Ok(is_there || !lab.machine().is_running(generator))
        })?;
        for end in 0..2 {
            let words = format!("link set taut-rig{end} master {BRIDGE} up");
            lab.run(&Command::new("ip").args(words))?;
        }
        Ok(())
    }

    pub(super) fn stop_bridge(&mut self, lab: &mut Lab) -> Measured<()> {
        if !std::mem::take(&mut self.has_bridge) {
            return Ok(());
        }
        lab.run(&Command::new("ip").args(format!("link del {BRIDGE}"))).map(drop)
    }
}
