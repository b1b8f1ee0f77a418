//! A fake host for tests: a card with two ports and a virtual function, a disk controller, a
//! bridge.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::VFIO;

pub(crate) const PORT: &str = "0000:3b:00.0";
pub(crate) const OTHER: &str = "0000:3b:00.1";
pub(crate) const VF: &str = "0000:3b:02.0";
pub(crate) const NVME: &str = "0000:5e:00.0";
pub(crate) const BRIDGE: &str = "0000:3a:00.0";

pub(crate) fn write(root: &Path, path: &str, content: &str) {
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

pub(crate) fn machine() -> tempfile::TempDir {
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
