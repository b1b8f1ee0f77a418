//! Two guests with queue pairs, in which programs have the library.

use crate::lab::{DaemonOptions, Lab, NEWEST};
use crate::reason::Measured;
use crate::sets::qp::shells::{Guest, LIBRARY, PRELOADED, image, shell, tcp_transfer};

/// Context IDs of the server and of the client.
const SERVER: u32 = 107;
const CLIENT: u32 = 108;

/// Address of the server.
pub(super) const ADDRESS: &str = "10.82.0.107";
/// Its ports: for transfers, for connections of the model by the library, by TCP, and for commands.
pub(super) const TRANSFERS: u32 = 7000;
pub(super) const MODEL: u32 = 7001;
pub(super) const MODEL_TCP: u32 = 7002;
pub(super) const COMMANDS: u32 = 7003;

/// Starts both guests, and the programs of the server.
pub(super) fn start(lab: &mut Lab) -> Measured<()> {
    let programs = [tcp_transfer(lab)?, lab.example("taut-preload", "tcp_program")?];
    lab.start_lan(DaemonOptions::default())?;
    let mut map = String::new();
    for port in [TRANSFERS, MODEL] {
        map += &format!("{ADDRESS}:{port} -> cid {SERVER}\nlisten *:{port}\n");
    }
    let boot = image(lab, NEWEST, &(map + "rings on\npatience 5000 ms\n"), &programs)?;
    for (name, cid) in [("server", SERVER), ("client", CLIENT)] {
        let vmci = "domains = [\"goals\"]\nqueue_pairs = \"16MiB\"";
        let guest = Guest { name, cid, boot: &boot, vmci };
        guest.start(lab)?;
        guest.has_queue_pairs(lab)?;
    }
    // Without its log, which would go to the connection that becomes a standard error.
    let lines = format!(
        "{LIBRARY} tcp_transfer serve 0.0.0.0:{TRANSFERS} >transfers 2>said &\n\
         {PRELOADED} tcp_program model serve 0.0.0.0:{MODEL_TCP} 0.0.0.0:{MODEL} 0.0.0.0:{COMMANDS} \
         >model 2>said-model &\n\
         until grep -q serves transfers && grep -q serves model; do sleep 0.2; done\nsleep 2"
    );
    shell(lab, "server", &lines).map(drop)
}
