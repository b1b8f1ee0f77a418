//! External ports for rows SE2 and SE12: pairs of ports are attached, and the example `restart`
//! sends numbered frames between them while a command is run again and again.

use std::path::{Path, PathBuf};

use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::Measured;

/// Attaches so many ports to the port group `lan`, and returns their sockets. Two after each other
/// are a pair.
pub(super) fn attach_ports(lab: &mut Lab, name: &str, count: usize) -> Measured<Vec<PathBuf>> {
    let sockets: Vec<PathBuf> = (0..count).map(|port| lab.folder().join(format!("{name}-{port}"))).collect();
    for (port, socket) in sockets.iter().enumerate() {
        let to = format!("{name}-{port} --portgroup lan --mac 02:11:00:00:00:{port:02x}");
        lab.taut(format!("port attach {to} --path {} --listen", socket.display()))?;
    }
    lab.until("the ports listen", 10, |lab| Ok(sockets.iter().all(|socket| lab.machine().exists(socket))))?;
    Ok(sockets)
}

/// Returns the command that loads these ports on CPU 1 while `command` runs.
pub(super) fn ports_command(
    lab: &Lab,
    load: &Path,
    sockets: &[PathBuf],
    options: &str,
    command: &str,
) -> Measured<Command> {
    let loaded = Command::new("taskset").args("-c 1").arg(load).args(options);
    let loaded = loaded.args(["--command", command, "--"]).limit(1800).session().record("restart");
    let loaded = loaded.env("TAUT_SOCKET", &lab.daemon()?.socket);
    Ok(sockets.iter().fold(loaded, Command::arg))
}
