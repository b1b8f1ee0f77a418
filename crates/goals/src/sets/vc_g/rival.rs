//! vhost-device-vsock, and guests whose VMCI devices it serves.

use std::path::PathBuf;

use crate::lab::{Lab, Rewrite, Twin};
use crate::machine::Command;
use crate::reason::Measured;
use crate::rival::Rival;

/// Rivals of goals beside vhost-device-vsock.
pub(in crate::sets) const BESIDE: &[Rival] = &[Rival::VhostDeviceVsock];

/// Folder of sockets and files of the rival's guests.
fn folder(lab: &Lab) -> PathBuf {
    lab.folder().join("twins")
}

/// Has vhost-device-vsock serve two devices, `NAME.vmci` in its folder, with context IDs 3 and 4.
/// Its session has the same priority as taut's fabric.
fn serve(lab: &mut Lab, names: [&str; 2]) -> Measured<()> {
    let program = lab.rival(Rival::VhostDeviceVsock)?;
    let folder = folder(lab);
    lab.machine().make_folder(&folder)?;
    let mut command = Command::new(program).preferred().record("vhost-device-vsock");
    for (cid, name) in (3..).zip(names) {
        let path = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
        let device = format!("guest-cid={cid},socket={},uds-path={}", path("vmci"), path("host"));
        command = command.arg("--vm").arg(device);
    }
    lab.start(&command)?;
    for name in names {
        let socket = folder.join(format!("{name}.vmci"));
        lab.until("vhost-device-vsock listens", 5, |lab| Ok(lab.machine().exists(&socket)))?;
    }
    Ok(())
}

/// Starts microguests on vhost-device-vsock with the same options of their devices as taut's, and
/// the same priority. Returns the end points of `taut bench`.
pub(in crate::sets) fn start_micros(lab: &mut Lab, device: &str) -> Measured<String> {
    let names = ["ra", "rb"];
    serve(lab, names)?;
    let folder = folder(lab);
    let mut ends = Vec::new();
    for name in names {
        let agent = folder.join(format!("{name}.agent"));
        let socket = folder.join(format!("{name}.vmci"));
        let command = Command::new(lab.program("taut-micro"))
            .args(["--name", name, "--agent-socket"])
            .arg(&agent)
            .args(["--vmci", &format!("connect={},{device}", socket.display())])
            .preferred()
            .record(&format!("micro-{name}"));
        lab.start(&command)?;
        lab.until("the rival's microguest listens", 5, |lab| Ok(lab.machine().exists(&agent)))?;
        ends.push(format!("agent:{}", agent.display()));
    }
    until_they_answer(lab, ends.join(" "))
}

/// Starts the VMs a and b once more, without a network, their VMCI devices on vhost-device-vsock.
/// Returns the end points of `taut bench`.
pub(super) fn start_vms(lab: &mut Lab) -> Measured<String> {
    let names = ["a", "b"];
    serve(lab, names)?;
    let folder = folder(lab);
    let mut ends = Vec::new();
    for name in names {
        let socket = folder.join(format!("{name}.vmci")).display().to_string();
        let twin = lab.start_twin(name, |word| on_rival(&socket, word))?;
        ends.push(Twin::end_point(&twin));
    }
    until_they_answer(lab, ends.join(" "))
}

fn on_rival(socket: &str, word: &str) -> Rewrite {
    if word.starts_with("socket,id=nic0,") {
        Rewrite::LeaveOut
    } else if word.starts_with("vhost-user,id=net0,") {
        Rewrite::Replace("hubport,id=net0,hubid=0".to_owned())
    } else if word.starts_with("socket,id=vmci0,") {
        Rewrite::Replace(format!("socket,id=vmci0,path={socket}"))
    } else {
        Rewrite::Keep
    }
}

/// Waits until guests have booted, and their devices know their context IDs.
fn until_they_answer(lab: &mut Lab, ends: String) -> Measured<String> {
    let words = format!("bench vsock {ends} --mode rr --message 1 --socket-size 64KiB --duration 0.1");
    lab.until("the guests on vhost-device-vsock answer", 60, |lab| {
        let answers = lab.taut(&words).is_ok();
        lab.sleep(if answers { 0.0 } else { 0.3 })?;
        Ok(answers)
    })?;
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_on_the_rival_has_its_socket_and_no_network() {
        let on = |word| on_rival("/lab/twins/a.vmci", word);
        assert_eq!(on("socket,id=nic0,path=x"), Rewrite::LeaveOut);
        assert_eq!(on("vhost-user,id=net0,chardev=nic0"), Rewrite::Replace("hubport,id=net0,hubid=0".into()));
        let device = Rewrite::Replace("socket,id=vmci0,path=/lab/twins/a.vmci".into());
        assert_eq!(on("socket,id=vmci0,path=y"), device);
        assert_eq!(on("-m"), Rewrite::Keep);
    }
}
