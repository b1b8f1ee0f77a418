//! OVS-DPDK with its polling thread on CPU 0 and a database of its own. Both kinds of flows are
//! measured in one process.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::{Flows, Rig, Switch};
use crate::lab::{Lab, Rewrite, Twin};
use crate::machine::{Command, Ended, Job, PREFERRED, Signal};
use crate::reason::{Measured, NotMeasured};
use crate::rival::Rival;

/// OVS while it runs.
#[derive(Debug)]
pub(super) struct Ovs {
    database: Job,
    /// ovs-vswitchd.
    pub(super) switch: Job,
    flows: Option<Flows>,
}

/// How OVS is ended and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// By its own command for that.
    Planned,
    /// By SIGKILL.
    Killed,
}

/// Ends ovs-vswitchd and starts it again with the priority that it had. The first one is a child of
/// this program, and so a zombie for a while.
const AGAIN: &str = r#"set -e
pid=$(cat PIDFILE)
END
while grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null; do sleep 0.001; done
START >/dev/null 2>&1
echo PREFERRED >"/proc/$(cat PIDFILE)/autogroup" || true
"#;

impl Rig {
    fn ovs_folder(&self) -> PathBuf {
        self.folder.join("ovs")
    }

    /// Returns a command of OVS, with its folders.
    fn of_ovs(&self, program: impl AsRef<Path>) -> Command {
        let folder = self.ovs_folder();
        let names = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];
        names.iter().fold(Command::new(program), |command, name| command.env(name, &folder))
    }

    /// Runs `ovs-vsctl`.
    pub fn ovs_vsctl(&self, lab: &mut Lab, words: &str) -> Measured<Ended> {
        let database = format!("--db=unix:{}", self.ovs_folder().join("db.sock").display());
        let command = self.of_ovs("ovs-vsctl").arg(database).arg("--timeout=20").args(words);
        lab.run(&command)
    }

    /// Replaces the second port of the bridge by a card of the host, which OVS drives by XDP
    /// sockets, in the best mode that works. Returns that mode.
    ///
    /// Fails with OVS's message if OVS cannot drive the card.
    pub fn add_ovs_xdp(&mut self, lab: &mut Lab, card: &str) -> Measured<String> {
        self.resume(lab, &Switch::Ovs(Flows::Fixed))?;
        let port = format!("set Interface {card} type=afxdp ofport_request=2 options:xdp-mode=best-effort");
        self.ovs_vsctl(lab, &format!("del-port br0 vu1 -- add-port br0 {card} -- {port}"))?;
        let fault = self.ovs_vsctl(lab, &format!("--if-exists get Interface {card} error"))?.stdout;
        if !matches!(fault.trimmed(), "" | "[]") {
            let log = lab.read(self.ovs_folder().join("vs.log"))?;
            let of_card = log.lines().into_iter().filter(|line| line.contains(card));
            let said = of_card.collect::<Vec<_>>().join("; ");
            return Err(NotMeasured::because(format!("OVS says: {} ({said})", fault.trimmed())));
        }
        let status = self.of_ovs("ovs-appctl").arg("-t").arg(self.ovs_folder().join("vs.ctl"));
        let shown = lab.run(&status.args("dpif/show"))?.stdout;
        shown.between("xdp-mode-in-use=", ")")
    }

    /// Arguments of ovs-vswitchd.
    fn vswitchd(&self) -> Vec<String> {
        let path = |name: &str| self.ovs_folder().join(name).display().to_string();
        vec![
            format!("unix:{}", path("db.sock")),
            format!("--unixctl={}", path("vs.ctl")),
            format!("--pidfile={}", path("vs.pid")),
            format!("--log-file={}", path("vs.log")),
            "-vconsole:off".to_owned(),
        ]
    }

    pub(super) fn start_ovs(&mut self, lab: &mut Lab) -> Measured<()> {
        if self.ovs.is_some() {
            return Ok(());
        }
        self.launch_ovs(lab)?;
        let bridge = self.make_bridge(lab);
        if bridge.is_err() {
            self.stop_ovs(lab)?;
        }
        bridge
    }

    /// Starts OVS's database and ovs-vswitchd.
    fn launch_ovs(&mut self, lab: &mut Lab) -> Measured<()> {
        let program = lab.rival(Rival::OvsDpdk)?;
        let folder = self.ovs_folder();
        lab.machine().remove_all(&folder)?;
        lab.machine().make_folder(&folder)?;
        let database = folder.join("conf.db");
        let create = self.of_ovs("ovsdb-tool").arg("create").arg(&database);
        lab.run(&create.arg("/usr/share/openvswitch/vswitch.ovsschema"))?;
        let socket = folder.join("db.sock");
        let server = lab.machine().program("ovsdb-server");
        let server = server.ok_or_else(|| NotMeasured::because("ovsdb-server is not installed"))?;
        let server = self.of_ovs(server).arg(&database);
        let server = server.arg(format!("--remote=punix:{}", socket.display()));
        let server = server.arg(format!("--unixctl={}", folder.join("ovsdb.ctl").display()));
        let database = lab.start(&server.session().record("ovsdb-server"))?;
        lab.until("OVS's database listens", 10, |lab| Ok(lab.machine().exists(&socket)))?;
        self.ovs_vsctl(lab, "--no-wait init")?;
        let dpdk = "dpdk-init=true dpdk-socket-mem=512 dpdk-lcore-mask=0x1 pmd-cpu-mask=0x1";
        for setting in dpdk.split(' ').chain(self.ovs_settings.iter().copied()) {
            self.ovs_vsctl(lab, &format!("--no-wait set Open_vSwitch . other_config:{setting}"))?;
        }
        let extra = format!("--no-pci --huge-dir {} --file-prefix taut-rig-ovs", self.huge.display());
        let database_at = format!("--db=unix:{}", socket.display());
        let command = self.of_ovs("ovs-vsctl").arg(database_at).args("--no-wait set Open_vSwitch .");
        lab.run(&command.arg(format!("other_config:dpdk-extra=\"{extra}\"")))?;
        let command = self.of_ovs(program).args(self.vswitchd()).preferred().record("ovs-vswitchd");
        let switch = lab.start(&command)?;
        self.ovs = Some(Ovs { database, switch, flows: None });
        Ok(())
    }

    /// Makes the bridge with two ports.
    fn make_bridge(&mut self, lab: &mut Lab) -> Measured<()> {
        let bridge = "set bridge br0 datapath_type=netdev fail-mode=secure";
        self.ovs_vsctl(lab, &format!("add-br br0 -- {bridge}"))?;
        for end in 0..2 {
            let port = format!("type=dpdkvhostuser ofport_request={}", end + 1);
            self.ovs_vsctl(lab, &format!("add-port br0 vu{end} -- set Interface vu{end} {port}"))?;
        }
        let sockets = self.sockets(&Switch::OVS)?;
        lab.until("OVS listens", 10, |lab| Ok(sockets.iter().all(|socket| lab.machine().exists(socket))))
    }

    /// Installs the flows that are measured now.
    pub(super) fn set_flows(&mut self, lab: &mut Lab, flows: Flows) -> Measured<()> {
        if self.ovs.as_ref().is_some_and(|ovs| ovs.flows == Some(flows)) {
            return Ok(());
        }
        let bridge = format!("unix:{}", self.ovs_folder().join("br0.mgmt").display());
        let rules: &[&str] = match flows {
            Flows::Normal => &["actions=normal"],
            Flows::Fixed => &["in_port=1,actions=output:2", "in_port=2,actions=output:1"],
        };
        lab.run(&self.of_ovs("ovs-ofctl").arg("del-flows").arg(&bridge))?;
        for rule in rules {
            lab.run(&self.of_ovs("ovs-ofctl").arg("add-flow").arg(&bridge).arg(rule))?;
        }
        if let Some(ovs) = &mut self.ovs {
            ovs.flows = Some(flows);
        }
        Ok(())
    }

    /// Adds a port that connects to a socket, as a VM's or a generator's that listens.
    pub fn add_ovs_client(&self, lab: &mut Lab, name: &str, socket: &Path) -> Measured<()> {
        let at = format!("options:vhost-server-path={}", socket.display());
        let port = format!("set Interface {name} type=dpdkvhostuserclient {at}");
        let again = format!("--if-exists del-port br0 {name} -- add-port br0 {name} -- {port}");
        self.ovs_vsctl(lab, &again).map(drop)
    }

    /// Has OVS start with more settings, such as `userspace-tso-enable=true`, if it has not
    /// started.
    pub fn set_ovs(&mut self, settings: &[&'static str]) {
        self.ovs_settings = settings.to_vec();
    }

    /// Starts a VM's twin with its network card on OVS's bridge.
    pub fn start_ovs_twin(&self, lab: &mut Lab, name: &str) -> Measured<Twin> {
        let socket = RefCell::new(None);
        let twin = lab.start_twin(name, |word| {
            if let Some(path) = socket_of(word) {
                socket.replace(Some(path));
            }
            Rewrite::Keep
        })?;
        let missing = || NotMeasured::because(format!("the command line of {name} has no socket"));
        self.add_ovs_client(lab, &format!("twin-{name}"), &socket.take().ok_or_else(missing)?)?;
        Ok(twin)
    }

    /// Writes a script that ends OVS and starts it again, and returns its path.
    pub fn ovs_restart(&self, lab: &mut Lab, how: Restart) -> Measured<PathBuf> {
        let program = lab.rival(Rival::OvsDpdk)?;
        let folder = self.ovs_folder();
        let end = match how {
            Restart::Planned => format!("ovs-appctl -t {} exit", folder.join("vs.ctl").display()),
            Restart::Killed => "kill -9 \"$pid\"".to_owned(),
        };
        let words = self.vswitchd().join(" ");
        let start = format!("env OVS_RUNDIR={} {} {words} --detach", folder.display(), program.display());
        let text = AGAIN.replace("PIDFILE", &folder.join("vs.pid").display().to_string());
        let text = text.replace("END", &end).replace("START", &start).replace("PREFERRED", PREFERRED);
        let path = self.folder.join(format!("ovs-{how:?}"));
        lab.machine().write(&path, &text)?;
        Ok(path)
    }

    pub(super) fn stop_ovs(&mut self, lab: &mut Lab) -> Measured<()> {
        let Some(ovs) = self.ovs.take() else { return Ok(()) };
        // After a restart, another process has its place.
        let pid = lab.read(self.ovs_folder().join("vs.pid")).and_then(|text| text.number());
        lab.end(&ovs.switch);
        if let Some(pid) = pid.ok().map(|pid| pid as u32).filter(|pid| *pid != ovs.switch.pid) {
            let _ = lab.machine().signal(pid, Signal::Terminate);
            let process = PathBuf::from(format!("/proc/{pid}"));
            let end = lab.until("OVS ends", 10, |lab| Ok(!lab.machine().exists(&process)));
            end.or_else(|_| lab.machine().signal(pid, Signal::Kill))?;
        }
        lab.end(&ovs.database);
        Ok(())
    }
}

/// Path in the word of a QEMU command line that makes the socket of the first network card.
fn socket_of(word: &str) -> Option<PathBuf> {
    let options = word.strip_prefix("socket,id=nic0,")?;
    options.split(',').find_map(|option| option.strip_prefix("path=")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_the_card_is_found() {
        let word = "socket,id=nic0,path=/run/x/nic0.sock,server=on,wait=off";
        assert_eq!(socket_of(word), Some(PathBuf::from("/run/x/nic0.sock")));
        assert_eq!(socket_of("vhost-user,id=net0,chardev=nic0"), None);
    }
}
