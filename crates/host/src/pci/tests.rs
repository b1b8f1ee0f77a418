//! A fake host: a card with two ports and a virtual function, a disk controller, a bridge; and a kernel that binds drivers.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;

use taut_api::Name;

use super::bind::{Binder, VFIO};
use super::*;
use crate::ledger::Ledger;

const PORT: &str = "0000:3b:00.0";
const OTHER: &str = "0000:3b:00.1";
const VF: &str = "0000:3b:02.0";
const NVME: &str = "0000:5e:00.0";
const BRIDGE: &str = "0000:3a:00.0";

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn add(root: &Path, address: &str, class: &str, driver: Option<&str>, group: u32) {
    let folder = format!("sys/bus/pci/devices/{address}");
    write(root, &format!("{folder}/vendor"), "0x8086\n");
    write(root, &format!("{folder}/device"), "0x1572\n");
    write(root, &format!("{folder}/class"), &format!("{class}\n"));
    write(root, &format!("{folder}/numa_node"), "1\n");
    write(root, &format!("{folder}/driver_override"), "(null)\n");
    let groups = root.join(format!("sys/kernel/iommu_groups/{group}/devices"));
    fs::create_dir_all(&groups).unwrap();
    symlink(format!("../../../../devices/{address}"), groups.join(address)).unwrap();
    symlink(format!("../../../kernel/iommu_groups/{group}"), root.join(&folder).join("iommu_group")).unwrap();
    if let Some(driver) = driver {
        symlink(root.join("sys/bus/pci/drivers").join(driver), root.join(&folder).join("driver")).unwrap();
    }
}

fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for driver in ["i40e", "iavf", "nvme", VFIO] {
        for file in ["bind", "unbind"] {
            write(root, &format!("sys/bus/pci/drivers/{driver}/{file}"), "");
        }
    }
    write(root, "sys/bus/pci/drivers_probe", "");
    add(root, BRIDGE, "0x060400", Some("pcieport"), 30);
    add(root, PORT, "0x020000", Some("i40e"), 31);
    add(root, OTHER, "0x020000", Some("i40e"), 31);
    add(root, VF, "0x020000", Some("iavf"), 40);
    add(root, NVME, "0x010802", Some("nvme"), 41);
    let class = |class: &str, name: &str, address: &str| {
        let folder = root.join("sys/class").join(class);
        fs::create_dir_all(&folder).unwrap();
        let target = root.join(format!("sys/devices/pci0000:3a/{BRIDGE}/{address}/{class}/{name}"));
        fs::create_dir_all(target.join("holders")).unwrap();
        symlink(target, folder.join(name)).unwrap();
    };
    class("net", "ens1f0", PORT);
    class("net", "ens1f1", OTHER);
    class("net", "ens1v0", VF);
    class("block", "nvme0n1", NVME);
    class("block", "nvme0n1p1", NVME);
    let routes = "Iface\tDestination\tGateway\nens1f0\t00000000\t0101A8C0\nens1f0\t0001A8C0\t00000000\nens1f1\t000AA8C0\t00000000\n";
    write(root, "proc/net/route", routes);
    let addresses = "fe80000000000000021b21fffe000001 02 40 20 80 ens1v0\n20010db8000000000000000000000001 03 40 00 80 ens1f1\n";
    write(root, "proc/net/if_inet6", addresses);
    write(root, "proc/mounts", "/dev/nvme0n1p1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n");
    write(root, "proc/swaps", "Filename Type\n/dev/nvme0n1 partition\n");
    fs::create_dir(root.join("sys/class/block/nvme0n1/holders/dm-0")).unwrap();
    dir
}

fn at(root: &Path, address: &str) -> PciDevice {
    device(root, address.parse().unwrap()).unwrap()
}

#[test]
fn devices_are_found_with_their_groups_and_uses() {
    let dir = machine();
    let root = dir.path();
    assert_eq!(host(root), PciHost { groups: 4, vfio: true });
    let port = at(root, PORT);
    assert_eq!((port.id.as_str(), port.driver.as_deref(), port.group), ("8086:1572", Some("i40e"), Some(31)));
    assert_eq!(port.node, Some(1));
    assert_eq!(port.neighbours.iter().map(|other| &*other.address).collect::<Vec<_>>(), [OTHER]);
    assert_eq!(port.uses, ["its interface ens1f0 has the host's default route"]);
    assert_eq!(
        at(root, OTHER).uses,
        ["its interface ens1f1 has addresses (1 IPv4 routes)", "its interface ens1f1 has 1 IPv6 addresses"]
    );
    assert_eq!(at(root, VF).uses, Vec::<String>::new(), "an address of the link is everybody's");
    assert_eq!(
        at(root, NVME).uses,
        [
            "the host swaps to its disk nvme0n1",
            "its disk nvme0n1 is a part of dm-0",
            "its disk nvme0n1p1 is mounted at /"
        ]
    );
    assert!(at(root, BRIDGE).bridge && !port.bridge);
    assert_eq!(device(root, "0000:ff:00.0".parse().unwrap()), None);
    symlink("../br0", root.join("sys/class/net/ens1v0/master")).unwrap();
    assert_eq!(at(root, VF).uses, ["its interface ens1v0 belongs to br0"]);
    for irq in ["120", "98", "99"] {
        write(root, &format!("sys/bus/pci/devices/{VF}/msi_irqs/{irq}"), "msix\n");
    }
    assert_eq!(interrupts(root, VF.parse().unwrap()), [98, 99, 120]);
}

/// What the kernel does when its files are written.
fn kernel(path: &Path, value: &str) -> io::Result<()> {
    let bus = path.ancestors().find(|folder| folder.ends_with("sys/bus/pci")).unwrap();
    let file = path.file_name().unwrap().to_str().unwrap();
    let device = |address: &str| bus.join("devices").join(address);
    match file {
        "driver_override" => {
            let value = if value == "\n" { "(null)" } else { value };
            fs::write(path, format!("{value}\n"))
        }
        "unbind" => fs::remove_file(device(value).join("driver")),
        "bind" => symlink(path.parent().unwrap(), device(value).join("driver")),
        "drivers_probe" => {
            let driver = fs::read_to_string(device(value).join("driver_override"))?;
            let folder = bus.join("drivers").join(driver.trim());
            // A driver that does not know the device leaves it without one, and says nothing.
            if folder.exists() { symlink(folder, device(value).join("driver")) } else { Ok(()) }
        }
        other => panic!("{other} is no file of the kernel"),
    }
}

fn binder(root: &Path) -> Binder {
    Binder::with_kernel(root, Ledger::new(root, &root.join("var/lib/taut")), kernel)
}

fn state(root: &Path, address: &str) -> (Option<String>, String) {
    let folder = folder(root, address);
    (link(&folder.join("driver")), fs::read_to_string(folder.join("driver_override")).unwrap())
}

#[test]
fn a_device_is_taken_and_given_back_to_its_driver() {
    let dir = machine();
    let root = dir.path();
    let (vm, vf): (Name, PciAddress) = ("db1".parse().unwrap(), VF.parse().unwrap());
    let before = state(root, VF);
    binder(root).take(&vm, vf).unwrap();
    assert_eq!(state(root, VF), (Some(VFIO.to_owned()), "vfio-pci\n".to_owned()));
    // Another process, after a kill: it is taken already, and what it had is still known.
    binder(root).take(&vm, vf).unwrap();
    assert_eq!(binder(root).taken().unwrap()[&vf].driver.as_deref(), Some("iavf"));
    binder(root).give_back(vf).unwrap();
    assert_eq!(state(root, VF), before);
    binder(root).give_back(vf).unwrap();
    assert!(!root.join("var/lib/taut/host-changes.json").exists(), "nothing is left in the ledger");
}

#[test]
fn a_kill_at_any_step_leaves_enough_to_give_it_back() {
    let vf: PciAddress = VF.parse().unwrap();
    for steps in 0..3 {
        let dir = machine();
        let root = dir.path();
        let before = state(root, VF);
        binder(root).take(&"db1".parse().unwrap(), vf).unwrap();
        // As it is after so many of the three steps.
        let folder = folder(root, VF);
        fs::remove_file(folder.join("driver")).unwrap();
        if steps < 2 {
            symlink(root.join("sys/bus/pci/drivers/iavf"), folder.join("driver")).unwrap();
        }
        if steps < 1 {
            fs::write(folder.join("driver_override"), "(null)\n").unwrap();
        }
        binder(root).give_back(vf).unwrap();
        assert_eq!(state(root, VF), before, "after {steps} steps");
        assert!(binder(root).taken().unwrap().is_empty());
    }
}

#[test]
fn a_driver_that_does_not_take_it_is_an_error_and_all_is_as_before() {
    let dir = machine();
    let root = dir.path();
    fs::remove_dir_all(root.join("sys/bus/pci/drivers").join(VFIO)).unwrap();
    let before = state(root, VF);
    let error = binder(root).take(&"db1".parse().unwrap(), VF.parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "0000:3b:02.0 cannot be bound to vfio-pci");
    assert_eq!(state(root, VF), before);
    assert!(binder(root).taken().unwrap().is_empty());
}

#[test]
fn a_device_that_is_gone_is_not_waited_for() {
    let dir = machine();
    let root = dir.path();
    let vf: PciAddress = VF.parse().unwrap();
    binder(root).take(&"db1".parse().unwrap(), vf).unwrap();
    fs::remove_dir_all(folder(root, VF)).unwrap();
    binder(root).give_back(vf).unwrap();
    assert!(binder(root).taken().unwrap().is_empty());
}
