//! Twins: the command line of a running VM once more, with a rival in the place of taut's switch.

use std::path::{Path, PathBuf};

use super::Lab;
use crate::machine::Command;
use crate::reason::{Measured, NotMeasured};

/// A VM's twin.
#[derive(Debug, Clone)]
pub struct Twin {
    /// Name of the VM that it is like.
    pub name: String,
    /// Folder of its files.
    pub folder: PathBuf,
    /// Its process.
    pub pid: u32,
}

impl Twin {
    /// End point of `taut bench` for its agent.
    pub fn end_point(&self) -> String {
        format!("agent:{}", self.folder.join("agent.sock").display())
    }
}

/// Change of one word of the VM's command line on its way into the twin's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// The word stays.
    Keep,
    /// Another word takes its place.
    Replace(String),
    /// The word and the option before it are left out.
    LeaveOut,
}

/// Name of the Linux bridge of twins.
pub const BRIDGE: &str = "taut-goal-br";

impl Lab<'_> {
    /// Starts a VM's twin. `rewrite` decides about each word of its command line.
    pub fn start_twin(&mut self, name: &str, rewrite: impl Fn(&str) -> Rewrite) -> Measured<Twin> {
        let folder = self.folder.join("twins").join(name);
        self.machine.make_folder(&folder)?;
        let (pid, words) = (self.vm_pid(name)?, self.command_line(name)?);
        let words = words.iter().map(|word| with_paths(word, pid, &folder));
        let arguments = rewritten(words, rewrite);
        let Some((program, arguments)) = arguments.split_first() else {
            return Err(NotMeasured::because(format!("the command line of {name} is empty")));
        };
        let command =
            Command::new(program).args(arguments.to_vec()).session().record(&format!("twin-{name}"));
        let job = self.start(&command)?;
        Ok(Twin { name: name.to_owned(), folder, pid: job.pid })
    }

    /// Starts twins on TAP devices of a Linux bridge.
    pub fn bridge_twins(&mut self, names: &[&str]) -> Measured<Vec<Twin>> {
        let ip = |words: &str| Command::new("ip").args(words);
        self.owe(ip(&format!("link del {BRIDGE}")))?;
        self.run(&ip(&format!("link add {BRIDGE} type bridge")))?;
        self.run(&ip(&format!("link set {BRIDGE} up")))?;
        let mut twins = Vec::new();
        for name in names {
            self.owe(ip(&format!("link del tgt-{name}")))?;
            self.run(&ip(&format!("tuntap add tgt-{name} mode tap vnet_hdr")))?;
            self.run(&ip(&format!("link set tgt-{name} master {BRIDGE} up")))?;
            twins.push(self.start_twin(name, |word| on_tap(name, word))?);
        }
        Ok(twins)
    }

    /// Waits until two twins have booted; no daemon knows that.
    pub fn until_twins_answer(&mut self, twins: &[Twin]) -> Measured<()> {
        let [from, to] = twins else { return Err(NotMeasured::because("it takes two twins")) };
        let words = format!("bench rr {} {} --duration 0.1", from.end_point(), to.end_point());
        self.until(&format!("the twins of {} and {} answer", from.name, to.name), 60, |lab| {
            let answers = lab.taut(&words).is_ok();
            lab.sleep(if answers { 0.0 } else { 0.5 })?;
            Ok(answers)
        })
    }

    /// Ends everything that [`Lab::start`] started, and so all twins.
    pub fn end_jobs(&mut self) {
        for job in std::mem::take(&mut self.jobs).into_iter().rev() {
            self.end(&job);
        }
    }
}

/// Replaces what the VM's process inherited: a twin makes sockets in its own folder, and opens
/// files of the VM's process.
fn with_paths(word: &str, pid: u32, folder: &Path) -> String {
    let socket = || {
        let id = word.strip_prefix("socket,id=")?.split(',').next()?;
        let (before, _) = word.split_once(",fd=").or_else(|| word.split_once(",abstract=on"))?;
        Some(format!("{before},path={}", folder.join(format!("{id}.sock")).display()))
    };
    socket().unwrap_or_else(|| word.replace("/proc/self/fd/", &format!("/proc/{pid}/fd/")))
}

fn on_tap(name: &str, word: &str) -> Rewrite {
    if word.starts_with("socket,id=nic0,") {
        Rewrite::LeaveOut
    } else if word.starts_with("vhost-user,id=net0,") {
        Rewrite::Replace(format!("tap,id=net0,ifname=tgt-{name},script=no,downscript=no"))
    } else {
        Rewrite::Keep
    }
}

fn rewritten(words: impl Iterator<Item = String>, rewrite: impl Fn(&str) -> Rewrite) -> Vec<String> {
    words.fold(Vec::new(), |mut words, word| {
        match rewrite(&word) {
            Rewrite::Keep => words.push(word),
            Rewrite::Replace(other) => words.push(other),
            Rewrite::LeaveOut => drop(words.pop()),
        }
        words
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_has_sockets_and_files_of_its_own() {
        let own = |word: &str| with_paths(word, 7, Path::new("/twin"));
        let agent = own("socket,id=agent,server=on,wait=off,fd=12");
        assert_eq!(agent, "socket,id=agent,server=on,wait=off,path=/twin/agent.sock");
        let card = own("socket,id=nic0,server=on,abstract=on,path=nic0");
        assert_eq!(card, "socket,id=nic0,server=on,path=/twin/nic0.sock");
        assert_eq!(own("/proc/self/fd/13"), "/proc/7/fd/13");
        assert_eq!(own("chardev=qmp,mode=control"), "chardev=qmp,mode=control");
    }

    #[test]
    fn a_twin_on_a_bridge_has_a_tap_in_place_of_the_socket() {
        let words = "qemu -chardev socket,id=nic0,path=x -netdev vhost-user,id=net0,chardev=nic0 -m 128";
        let twin = rewritten(words.split(' ').map(str::to_owned), |word| on_tap("alpha", word));
        let expected = "qemu -netdev tap,id=net0,ifname=tgt-alpha,script=no,downscript=no -m 128";
        assert_eq!(twin.join(" "), expected);
    }
}
