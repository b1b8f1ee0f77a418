//! A VM that was started without shared memory: its port reports that as the reason (VN-1 needs
//! it).

use std::process::Command;

use taut_tests::{Background, Taut, any_image, eventually};

#[test]
fn private_guest_memory_is_reported_as_the_reason_of_a_dead_link() {
    let taut = Taut::start().with_lan();
    let (image, socket) = (any_image(), taut.dir().join("nic.sock"));
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-machine",
        "q35",
        "-accel",
        "tcg",
        "-m",
        "128",
    ]);
    qemu.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initrd"));
    qemu.arg("-chardev").arg(format!("socket,id=nic0,path={},server=on", socket.display()));
    qemu.args(["-netdev", "vhost-user,id=net0,chardev=nic0", "-device", "virtio-net-pci,netdev=net0"]);
    let _qemu = Background::start(&mut qemu);
    taut.ok(["port", "attach", "private", "--portgroup", "lan", "--path", socket.to_str().unwrap()]);
    let reason = eventually("the front end has connected", || {
        let ports = taut.json(["port", "list"]);
        let reason = ports[0]["reason"].as_str()?.to_owned();
        (reason != "nothing is attached").then_some(reason)
    });
    assert!(reason.contains("share=on"), "{reason}");
}
