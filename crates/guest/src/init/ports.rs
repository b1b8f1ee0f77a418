//! The agent's virtio-serial port.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::patience::eventually;

/// Path of the port's device, as udev creates it in an ordinary guest.
pub(super) const AGENT: &str = "/dev/virtio-ports/org.taut.agent.0";

/// Links the port to its usual path.
pub(super) fn link() -> io::Result<()> {
    let name = AGENT.rsplit('/').next().unwrap_or_default();
    let device = eventually(|| find(name), AGENT)?;
    fs::create_dir_all("/dev/virtio-ports")?;
    symlink(device, AGENT)
}

/// Returns the device whose name in sysfs is `name`.
fn find(name: &str) -> io::Result<Option<PathBuf>> {
    let Ok(ports) = fs::read_dir("/sys/class/virtio-ports") else { return Ok(None) };
    for port in ports {
        let port = port?;
        if fs::read_to_string(port.path().join("name")).is_ok_and(|text| text.trim() == name) {
            return Ok(Some(PathBuf::from("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}
