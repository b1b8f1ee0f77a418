//! Network namespaces of a lab.

use super::Lab;
use crate::machine::Command;
use crate::reason::Measured;

impl Lab<'_> {
    /// Attaches a namespace to a port group of the current daemon, and removes it with the lab.
    pub fn netns(&mut self, name: &str, portgroup: &str, ip: &str) -> Measured<()> {
        self.owe(Command::new("ip").args(["netns", "del", name]))?;
        self.taut(format!("netns attach {name} --portgroup {portgroup} --ip {ip}/24")).map(drop)
    }

    /// Makes two namespaces with a cable (veth) between them: `taut-goal-a` with 10.86.0.1 and
    /// `taut-goal-b` with 10.86.0.2.
    pub fn native_pair(&mut self) -> Measured<()> {
        for name in ["taut-goal-a", "taut-goal-b"] {
            self.owe(Command::new("ip").args(["netns", "del", name]))?;
            self.run(&Command::new("ip").args(["netns", "add", name]))?;
        }
        let cable = "link add tgv-a netns taut-goal-a type veth peer name tgv-b netns taut-goal-b";
        self.run(&Command::new("ip").args(cable))?;
        for (end, ip) in [("a", "10.86.0.1"), ("b", "10.86.0.2")] {
            let inside = |words: &str| Command::new("ip").args(format!("-n taut-goal-{end} {words}"));
            self.run(&inside(&format!("addr add {ip}/24 dev tgv-{end}")))?;
            self.run(&inside(&format!("link set tgv-{end} up")))?;
            self.run(&inside("link set lo up"))?;
        }
        Ok(())
    }
}
