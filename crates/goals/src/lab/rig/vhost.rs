//! DPDK's vhost library without a switch.

use super::Rig;
use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};
use crate::rival::Rival;

/// Gives testpmd a terminal that stays open: `start` is written to it, and no end of file.
const START: &str = r#"exec 9<>"$1"; shift; exec "$@" <&9"#;

impl Rig {
    pub(super) fn start_vhost(&mut self, lab: &mut Lab) -> Measured<()> {
        if self.vhost.is_some() {
            return Ok(());
        }
        let program = lab.rival(Rival::DpdkTestpmd)?;
        let input = self.folder.join("vhost-input");
        lab.run(&Command::new("mkfifo").arg(&input))?;
        let sockets = ["vhost-0", "vhost-1"].map(|name| self.folder.join(name));
        let mut command = Command::new("sh").args(["-c", START, "sh"]).arg(&input).arg(program);
        command = command.args("-l 0,1 --main-lcore 1 --no-pci --file-prefix=taut-rig-vhost -m 512");
        command = command.args("--single-file-segments --huge-dir").arg(&self.huge);
        for (end, socket) in sockets.iter().enumerate() {
            let device = format!("net_vhost{end},iface={},queues=1", socket.display());
            command = command.args(["--vdev".to_owned(), device].to_vec());
        }
        command = command.args("-- -i --nb-cores=1 --txd=1024 --rxd=1024 --no-flush-rx");
        command = command.args("--total-num-mbufs=16384 --forward-mode=io").preferred().record("testpmd");
        let job = lab.start(&command)?;
        self.vhost = Some(job.clone());
        let listens = lab.until("testpmd listens", 20, |lab| {
            require(lab.machine().is_running(&job), "testpmd ended")?;
            Ok(sockets.iter().all(|socket| lab.machine().exists(socket)))
        });
        if listens.is_err() {
            self.vhost = None;
            lab.end(&job);
            lab.machine().remove(&input)?;
        }
        listens?;
        lab.machine().write(&input, "start\n")?;
        lab.sleep(0.5)
    }
}
