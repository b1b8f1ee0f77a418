//! Taking devices of the fake host, with a function that stands in for the kernel's drivers.

use std::fs;
use std::os::unix::fs::symlink;

use taut_api::enforcement::VmShare;

use super::*;
use crate::kernel::pci::fixture::{VF, machine};

/// Does what the kernel does when these files are written.
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
            // A driver that does not know the device leaves it unbound, without an error.
            if folder.exists() { symlink(folder, device(value).join("driver")) } else { Ok(()) }
        }
        other => panic!("unexpected file {other}"),
    }
}

fn devices(root: &Path) -> Devices {
    Devices::with_kernel(root, Ledger::new(root, &root.join("var/lib/taut")), kernel)
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
    devices(root).take(&vm, vf).unwrap();
    assert_eq!(state(root, VF), (Some(VFIO.to_owned()), "vfio-pci\n".to_owned()));
    // The next process finds it taken, and its former driver in the ledger.
    devices(root).take(&vm, vf).unwrap();
    assert_eq!(devices(root).taken[&vf].driver.as_deref(), Some("iavf"));
    devices(root).give_back(vf).unwrap();
    assert_eq!(state(root, VF), before);
    devices(root).give_back(vf).unwrap();
    assert!(!root.join("var/lib/taut/host-changes.json").exists(), "nothing is left in the ledger");
}

#[test]
fn a_device_is_its_vms_from_the_start_to_the_end() {
    let dir = machine();
    let root = dir.path();
    let (vm, vf): (Name, PciAddress) = ("db1".parse().unwrap(), VF.parse().unwrap());
    let mut devices = devices(root);
    devices.take(&vm, vf).unwrap();
    let starting = HostPlan { starting: [vm.clone()].into(), ..HostPlan::default() };
    let running = HostPlan { vms: [(vm, VmShare::default())].into(), ..HostPlan::default() };
    for plan in [starting, running] {
        devices.give_back_unused(&plan, &mut HostReport::default());
        assert_eq!(state(root, VF).0.as_deref(), Some(VFIO));
    }
    devices.give_back_unused(&HostPlan::default(), &mut HostReport::default());
    assert_eq!(state(root, VF).0.as_deref(), Some("iavf"));
}

#[test]
fn a_kill_at_any_step_leaves_enough_to_give_it_back() {
    let vf: PciAddress = VF.parse().unwrap();
    for steps in 0..3 {
        let dir = machine();
        let root = dir.path();
        let before = state(root, VF);
        devices(root).take(&"db1".parse().unwrap(), vf).unwrap();
        // Restores the state after this many of the three steps.
        let folder = folder(root, VF);
        fs::remove_file(folder.join("driver")).unwrap();
        if steps < 2 {
            symlink(root.join("sys/bus/pci/drivers/iavf"), folder.join("driver")).unwrap();
        }
        if steps < 1 {
            fs::write(folder.join("driver_override"), "(null)\n").unwrap();
        }
        devices(root).give_back(vf).unwrap();
        assert_eq!(state(root, VF), before, "after {steps} steps");
        assert!(devices(root).is_idle());
    }
}

#[test]
fn a_driver_that_refuses_a_device_is_an_error_and_the_device_returns() {
    let dir = machine();
    let root = dir.path();
    fs::remove_dir_all(root.join("sys/bus/pci/drivers").join(VFIO)).unwrap();
    let before = state(root, VF);
    let error = devices(root).take(&"db1".parse().unwrap(), VF.parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "0000:3b:02.0 cannot be bound to vfio-pci");
    assert_eq!(state(root, VF), before);
    assert!(devices(root).is_idle());
}

#[test]
fn an_unplugged_device_leaves_the_ledger() {
    let dir = machine();
    let root = dir.path();
    let vf: PciAddress = VF.parse().unwrap();
    devices(root).take(&"db1".parse().unwrap(), vf).unwrap();
    fs::remove_dir_all(folder(root, VF)).unwrap();
    devices(root).give_back(vf).unwrap();
    assert!(devices(root).is_idle());
}
