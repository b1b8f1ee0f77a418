//! QEMU's command line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use taut_api::Name;
use taut_api::host::{AcceleratorKind, QemuInfo};
use taut_api::machine::TCG_CACHE;
use taut_api::passthrough::PciAddress;
use taut_api::vm::{Boot, NicModel, NicSpec, VmSpec};

use super::inherit::{Inherited, Source};
use super::{Launch, MSIX_WORKS_FROM, RunPaths, Start, disk, memory, queue_pairs, tuning, vmci};

/// Name of the agent's virtio-serial port in the guest's `/dev/virtio-ports`.
const AGENT_PORT: &str = "org.taut.agent.0";

/// Forbids QEMU what it never needs here: programs, more privileges, and changes of its own
/// scheduling, which the daemon sets from outside.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Name of the process, as the kernel shortens that of the program.
const PROCESS: &str = "qemu-system-x86";

/// Name of the network end of a card.
pub(super) fn card_name(index: usize) -> String {
    format!("net{index}")
}

/// Name of the device of a card, by which QEMU tells its address.
pub(super) fn device_name(index: usize) -> String {
    format!("card{index}")
}

/// Abstract name of the socket on which QEMU listens for the back end of a virtio card. The name
/// exists only in the network namespace of QEMU's process, where nobody else is. QEMU does not take
/// an inherited socket for a vhost-user card, because it tells by the socket's address whether
/// descriptors can be passed.
pub fn private_socket(index: usize) -> String {
    format!("nic{index}")
}

/// First PCI slot of the cards, clear of the other devices. Each slot has eight cards, in their
/// order.
const NIC_SLOT: usize = 8;

pub(super) fn start(launch: &Launch<'_>, qemu: &QemuInfo) -> Start {
    let Launch { name, spec, paths, accelerator, tuning, disk, .. } = *launch;
    let works = accelerator.kind == AcceleratorKind::Kvm;
    let emulated = tuning::accelerator(spec, accelerator).kind == AcceleratorKind::Tcg;
    let mut args = Args::default();
    args.flag("-nodefaults").flag("-no-user-config").option("-sandbox", SANDBOX);
    args.option("-display", "none");
    // Older kernels name a program that was executed by its descriptor after that number.
    args.option("-name", format!("guest={name},process={PROCESS},debug-threads=on"));
    for (name, value) in memory::options(spec, &tuning) {
        args.option(name, value);
    }
    if emulated {
        args.option("-accel", format!("tcg,tb-size={}", TCG_CACHE.as_mib()));
        if spec.boot.is_none() {
            // Distributions on users' disks may require more than the instruction set of the
            // default CPU.
            args.option("-cpu", "max");
        }
    } else {
        args.option("-accel", "kvm").option("-cpu", tuning::kvm_cpu(tuning, works));
    }
    let overcommit: Vec<_> = [(tuning.locked, "mem-lock=on"), (tuning.cpu_pm, "cpu-pm=on")]
        .into_iter()
        .filter_map(|(wanted, option)| wanted.then_some(option))
        .collect();
    if !overcommit.is_empty() {
        args.option("-overcommit", overcommit.join(","));
    }
    sockets(&mut args, paths);
    match &spec.boot {
        Some(boot) => direct_boot(&mut args, name, spec, boot, emulated),
        None => firmware_addresses(&mut args, spec),
    }
    if let (Some(spec), Some(chain)) = (&spec.disk, disk) {
        for (name, value) in disk::options(spec, chain, &mut args.inherited) {
            args.option(name, value);
        }
    }
    args.option("-device", "virtio-rng-pci");
    let without_msix = emulated && major(qemu) < MSIX_WORKS_FROM;
    for (index, nic) in spec.nics.iter().enumerate() {
        card(&mut args, index, nic, launch, without_msix);
    }
    for (index, device) in spec.passthrough.iter().enumerate() {
        passthrough_device(&mut args, index, device.address);
    }
    if spec.vmci.is_some() {
        let connection = args.inherited.add(Source::Connection(paths.vmci_front()));
        for (name, value) in vmci::options(connection, without_msix) {
            args.option(name, value);
        }
    }
    if spec.queue_pairs().0 > 0 {
        let number = args.inherited.add(Source::QueuePairs(spec.queue_pairs()));
        for (name, value) in queue_pairs::options(spec, &tuning, number) {
            args.option(name, value);
        }
    }
    Start { program: PathBuf::from(&qemu.path), args: args.words, sources: args.inherited.into_sources() }
}

/// Adds monitors, console and agent channel. QEMU listens and does not wait for a client.
fn sockets(args: &mut Args, paths: &RunPaths) {
    let listen = |args: &mut Args, id: &str, path: PathBuf| {
        let number = args.inherited.add(Source::Listener(path));
        args.option("-chardev", format!("socket,id={id},server=on,wait=off,fd={number}"));
    };
    listen(args, "qmp", paths.qmp());
    args.option("-mon", "chardev=qmp,mode=control");
    listen(args, "events", paths.events());
    args.option("-mon", "chardev=events,mode=control");
    listen(args, "console", paths.serial());
    args.option("-serial", "chardev:console");
    listen(args, "agent", paths.agent());
    args.option("-device", "virtio-serial-pci,id=serial0");
    args.option("-device", format!("virtserialport,bus=serial0.0,chardev=agent,name={AGENT_PORT}"));
}

fn direct_boot(args: &mut Args, name: &Name, spec: &VmSpec, boot: &Boot, emulated: bool) {
    // A guest that reboots after a panic would only panic again. Instead the VM ends, and its
    // console log has the reason.
    let mut cmdline = format!("console=ttyS0 panic=-1 quiet hostname={name}");
    if emulated {
        // An emulated CPU has no other clock to calibrate against, and nothing to mitigate.
        cmdline.push_str(" tsc=reliable mitigations=off");
    }
    if spec.disk.is_some() && boot.initrd.is_none() {
        cmdline.push_str(" root=/dev/vda rw");
    }
    let memory = queue_pairs::kernel_argument(spec).map(str::to_owned);
    for word in memory.into_iter().chain(addresses(spec)) {
        cmdline.push(' ');
        cmdline.push_str(&word);
    }
    // The user's arguments come last, because the kernel uses the later of two contradicting ones.
    if !boot.cmdline.is_empty() {
        cmdline.push(' ');
        cmdline.push_str(&boot.cmdline);
    }
    let kernel = args.copy(&boot.kernel);
    args.option("-kernel", kernel).option("-append", cmdline).flag("-no-reboot");
    if let Some(initrd) = &boot.initrd {
        let initrd = args.copy(initrd);
        args.option("-initrd", initrd);
    }
}

/// Adds the guest's addresses to the firmware. A guest that boots from its own disk has its own
/// kernel command line and reads them there.
fn firmware_addresses(args: &mut Args, spec: &VmSpec) {
    let words: Vec<String> = addresses(spec).collect();
    if !words.is_empty() {
        let words = escaped(&words.join(" "));
        args.option("-fw_cfg", format!("name=opt/org.taut/addresses,string={words}"));
    }
}

/// The addresses and the default route that the guest's agent sets, in the agent's syntax.
fn addresses(spec: &VmSpec) -> impl Iterator<Item = String> {
    let ips = spec.nics.iter().filter_map(|nic| Some(format!("taut.ip={},{}", nic.mac?, nic.ip?)));
    let gateways = spec.nics.iter().filter_map(|nic| Some(format!("taut.gateway={}", nic.gateway?)));
    ips.chain(gateways)
}

fn card(args: &mut Args, index: usize, nic: &NicSpec, launch: &Launch<'_>, without_msix: bool) {
    let (slot, function) = (NIC_SLOT + index / 8, index % 8);
    let mut place = format!("addr={slot:x}.{function:x},romfile=");
    if function == 0 {
        place.push_str(",multifunction=on");
    }
    if let Some(mac) = nic.mac {
        let _ = write!(place, ",mac={mac}");
    }
    let model = match nic.model {
        NicModel::Virtio => "virtio-net-pci",
        NicModel::Vmxnet3 => "vmxnet3",
        NicModel::E1000 => "e1000",
        NicModel::E1000e => "e1000e",
        NicModel::Vlance => "pcnet",
    };
    let net = card_name(index);
    let mut device = format!("{model},id={},netdev={net},{place}", device_name(index));
    if nic.model == NicModel::Virtio {
        // Guests read a speed (`VIRTIO_NET_F_SPEED_DUPLEX`): that of ESX's vmxnet3, whatever the
        // uplinks have.
        let _ = write!(device, ",speed={},duplex=full", NicSpec::SPEED_MBIT);
        device.push_str(&format!(",rx_queue_size={},tx_queue_size={}", nic.rings.rx, nic.rings.tx));
        if let Some(mtu) = launch.mtus.get(&index) {
            // The driver takes it as its MTU, and sets no larger one (VIRTIO_NET_F_MTU).
            let _ = write!(device, ",host_mtu={mtu}");
        }
        if nic.rings.packed {
            device.push_str(",packed=on");
        }
        if !nic.offloads {
            device.push_str(
                ",csum=off,guest_csum=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,\
                 guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off",
            );
        }
        let queues = nic.queues.get();
        if queues > 1 {
            device.push_str(",mq=on");
        }
        if without_msix {
            device.push_str(",vectors=0");
        } else if queues > 1 {
            // One vector for each queue, one for configuration changes, one for the control queue.
            let _ = write!(device, ",vectors={}", 2 * queues + 2);
        }
        let socket = private_socket(index);
        args.option("-chardev", format!("socket,id=nic{index},server=on,abstract=on,path={socket}"));
        let mut netdev = format!("vhost-user,id={net},chardev=nic{index}");
        if queues > 1 {
            let _ = write!(netdev, ",queues={queues}");
        }
        args.option("-netdev", netdev);
    } else {
        let number = args.inherited.add(Source::Listener(launch.paths.nic(index)));
        args.option("-netdev", format!("stream,id={net},server=on,addr.type=fd,addr.str={number}"));
    }
    args.option("-device", device);
}

/// Adds a pass-through device on a root port of its own, as PCI Express requires and so that it can
/// be unplugged.
fn passthrough_device(args: &mut Args, index: usize, address: PciAddress) {
    let (chassis, slot) = (PASSTHROUGH_SLOT + index, PASSTHROUGH_SLOT + index);
    args.option("-device", format!("pcie-root-port,id=handed{index}port,chassis={chassis},addr={slot:x}"));
    args.option("-device", format!("vfio-pci,id=handed{index},host={address},bus=handed{index}port"));
}

fn major(qemu: &QemuInfo) -> u64 {
    // A version that cannot be read is taken for a new one.
    qemu.version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

/// First PCI slot of the root ports for pass-through devices, behind that of the VMCI device.
const PASSTHROUGH_SLOT: usize = 0x12;

/// A command line under construction.
#[derive(Default)]
struct Args {
    words: Vec<String>,
    inherited: Inherited,
}

impl Args {
    fn flag(&mut self, flag: &str) -> &mut Self {
        self.words.push(flag.to_owned());
        self
    }

    fn option(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.words.extend([name.to_owned(), value.into()]);
        self
    }

    /// Adds a copy of a file and returns the path by which QEMU opens it.
    fn copy(&mut self, path: &str) -> String {
        let number = self.inherited.add(Source::Copy(Path::new(path).to_owned()));
        format!("/proc/self/fd/{number}")
    }
}

/// Escapes `text` as a value in QEMU's `key=value,…` options, where a comma is written twice.
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}
