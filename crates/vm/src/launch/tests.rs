use taut_api::coalescing::NicCoalescing;
use taut_api::host::AcceleratorKind;
use taut_api::link::WantedLink;
use taut_api::machine::{AcceleratorChoice, DiskLimits, HaltSpec};
use taut_api::resources::MemoryReservation;
use taut_api::shaping::OwnShaping;
use taut_api::shares::Shares;
use taut_api::vm::{Boot, Disk, DiskBus, DiskFormat, LatencySensitivity, NicModel, NicSpec, Rings};
use taut_api::vmci::VmciSpec;
use taut_api::{Bytes, Mtu, QueuePairs};

use super::*;

fn accelerator(kind: AcceleratorKind) -> Accelerator {
    Accelerator { kind, why: "chosen by the test".into() }
}

fn qemu(version: &str) -> QemuInfo {
    QemuInfo { path: "/usr/bin/qemu-system-x86_64".into(), version: version.into() }
}

fn nic(model: NicModel) -> NicSpec {
    NicSpec {
        portgroup: "lan".parse().unwrap(),
        link: WantedLink::Up,
        mac: Some(taut_api::MacAddr::derived("db1", 0)),
        model,
        ip: Some("10.0.0.1/24".parse().unwrap()),
        gateway: None,
        rings: Rings { rx: 512, tx: 256, packed: false },
        offloads: true,
        queues: QueuePairs::default(),
        shaping: OwnShaping::default(),
        uplink_allocation: taut_api::network_io::NetworkAllocation::default(),
        coalescing: NicCoalescing::HostDefault,
        lro: None,
    }
}

fn direct(nics: Vec<NicSpec>) -> VmSpec {
    let boot = Boot {
        kernel: "/i/vmlinuz".into(),
        initrd: Some("/i/initrd".into()),
        cmdline: "debug quiet=0".into(),
    };
    VmSpec { boot: Some(boot), nics, memory: Bytes::mib(128), ..VmSpec::default() }
}

/// The command line with one option a line, and the inherited descriptors.
fn shown(spec: &VmSpec, kind: AcceleratorKind, version: &str) -> String {
    let paths = RunPaths::new("/run/taut/vms/db1");
    let name = "db1".parse().unwrap();
    let accelerator = accelerator(kind);
    let chosen = super::accelerator(spec, &accelerator);
    let chain = spec.disk.as_ref().map(one_image);
    let virtio = spec.nics.iter().enumerate().filter(|(_, nic)| nic.model == NicModel::Virtio);
    let mtus = virtio.map(|(index, _)| (index, Mtu::default())).collect();
    let launch = Launch {
        name: &name,
        spec,
        paths: &paths,
        accelerator: &accelerator,
        qemu: Some(&qemu(version)),
        libexec: Path::new("/usr/libexec/taut"),
        tuning: Tuning::of(spec, &chosen, spec.latency_sensitivity != LatencySensitivity::Normal),
        mtus: &mtus,
        disk: chain.as_ref(),
    };
    let start = launch.start().unwrap();
    let mut text = start.program.display().to_string();
    for arg in &start.args {
        text.push_str(if arg.starts_with('-') { "\n" } else { " " });
        text.push_str(arg);
    }
    for (number, source) in (FIRST..).zip(&start.sources) {
        text.push_str(&format!("\n{number}: {source:?}"));
    }
    text
}

/// A chain of one image of 1 GiB.
fn one_image(disk: &Disk) -> DiskChain {
    let image = DiskImage { format: disk.format, is_device: false, part: None };
    DiskChain { images: vec![image], virtual_size: 1 << 30 }
}

#[test]
fn direct_boot_under_emulation() {
    insta::assert_snapshot!(shown(&direct(vec![nic(NicModel::Virtio)]), AcceleratorKind::Tcg, "10.0.2"));
}

#[test]
fn disk_under_kvm_with_every_emulated_card() {
    let models = [NicModel::Vmxnet3, NicModel::E1000, NicModel::E1000e, NicModel::Vlance];
    let disk = Disk {
        path: "/images/a, b,c.vmdk".into(),
        format: DiskFormat::Vmdk,
        bus: DiskBus::Pvscsi,
        snapshot: true,
        limits: DiskLimits::default(),
        shares: Shares::default(),
    };
    let spec = VmSpec { disk: Some(disk), nics: models.map(nic).to_vec(), vcpus: 4, ..VmSpec::default() };
    insta::assert_snapshot!(shown(&spec, AcceleratorKind::Kvm, "10.0.2"));
}

#[test]
fn an_old_qemu_gets_no_msix_under_emulation() {
    let spec = direct(vec![nic(NicModel::Virtio)]);
    assert!(shown(&spec, AcceleratorKind::Tcg, "7.2.22").contains("vectors=0"));
    assert!(!shown(&spec, AcceleratorKind::Kvm, "7.2.22").contains("vectors=0"));
    assert!(!shown(&spec, AcceleratorKind::Tcg, "10.0.2").contains("vectors=0"));
    assert!(!shown(&spec, AcceleratorKind::Tcg, "not a version").contains("vectors=0"));
}

#[test]
fn addresses_reach_a_guest_on_its_own_disk_through_the_firmware() {
    let disk = Disk {
        path: "/d".into(),
        format: DiskFormat::Raw,
        bus: DiskBus::Sata,
        snapshot: false,
        limits: DiskLimits::default(),
        shares: Shares::default(),
    };
    let other = NicSpec { mac: Some(taut_api::MacAddr([2; 6])), ..nic(NicModel::E1000) };
    let spec = VmSpec { disk: Some(disk), nics: vec![nic(NicModel::Virtio), other], ..VmSpec::default() };
    insta::assert_snapshot!(shown(&spec, AcceleratorKind::Tcg, "10.0.2"));
}

#[test]
fn first_hour_a_gateway_reaches_every_kind_of_guest() {
    let routed = NicSpec { gateway: Some("10.0.0.254".parse().unwrap()), ..nic(NicModel::Virtio) };
    let text = shown(&direct(vec![routed.clone()]), AcceleratorKind::Tcg, "10.0.2");
    assert!(text.contains(",10.0.0.1/24 taut.gateway=10.0.0.254"), "{text}");
    let micro = VmSpec { kind: VmKind::Micro, nics: vec![routed], ..VmSpec::default() };
    let text = shown(&micro, AcceleratorKind::Tcg, "10.0.2");
    assert!(text.contains(",ip=10.0.0.1/24,gateway=10.0.0.254,"), "{text}");
}

#[test]
fn thirty_two_cards_have_pci_functions_in_their_order() {
    let text = shown(&direct(vec![nic(NicModel::Virtio); 32]), AcceleratorKind::Tcg, "10.0.2");
    let places: Vec<_> = text.split("addr=").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
    assert_eq!(places[..9], ["8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "9.0"]);
    assert_eq!(places.last(), Some(&"b.7"));
    assert_eq!(text.matches("multifunction=on").count(), 4, "the first function of each slot");
}

#[test]
fn offloads_that_are_off_are_not_offered() {
    let spec = direct(vec![NicSpec { offloads: false, ..nic(NicModel::Virtio) }]);
    let text = shown(&spec, AcceleratorKind::Tcg, "10.0.2");
    assert!(text.contains(",csum=off,guest_csum=off,") && text.contains("guest_tso4=off"), "{text}");
}

#[test]
fn each_queue_has_a_vector_besides_two_others() {
    let spec = direct(vec![NicSpec { queues: 4.try_into().unwrap(), ..nic(NicModel::Virtio) }]);
    let text = shown(&spec, AcceleratorKind::Tcg, "10.0.2");
    assert!(text.contains("vhost-user,id=net0,chardev=nic0,queues=4\n"), "{text}");
    assert!(text.contains(",mq=on,vectors=10"), "{text}");
    let old = shown(&spec, AcceleratorKind::Tcg, "7.2.22");
    assert!(old.contains(",mq=on,vectors=0") && !old.contains("vectors=10"), "{old}");
}

#[test]
fn a_kernel_without_initrd_finds_its_root_on_the_disk() {
    let mut spec = direct(vec![]);
    spec.boot.as_mut().unwrap().initrd = None;
    assert!(!shown(&spec, AcceleratorKind::Tcg, "10.0.2").contains("root="));
    let disk = Disk {
        path: "/d".into(),
        format: DiskFormat::Raw,
        bus: DiskBus::Virtio,
        snapshot: false,
        limits: DiskLimits::default(),
        shares: Shares::default(),
    };
    spec.disk = Some(disk);
    assert!(shown(&spec, AcceleratorKind::Tcg, "10.0.2").contains("root=/dev/vda rw"));
}

#[test]
fn microguest() {
    let cards = vec![nic(NicModel::Virtio), NicSpec { ip: None, offloads: false, ..nic(NicModel::Virtio) }];
    let spec = VmSpec { kind: VmKind::Micro, nics: cards, memory: Bytes::mib(64), ..VmSpec::default() };
    insta::assert_snapshot!(shown(&spec, AcceleratorKind::Tcg, "10.0.2"));
}

#[test]
fn a_vmci_device_is_on_a_port_of_its_own() {
    let with = |kind| VmSpec { vmci: Some(VmciSpec::default()), kind, ..direct(vec![nic(NicModel::Virtio)]) };
    let added = |spec: &VmSpec, version| {
        let without = VmSpec { vmci: None, ..spec.clone() };
        // The inherited descriptors follow the options.
        let options = |spec: &VmSpec| {
            shown(spec, AcceleratorKind::Tcg, version).split("\n10: ").next().unwrap().to_owned()
        };
        let (with, without) = (options(spec), options(&without));
        with.strip_prefix(&without).expect("it comes last: no other device moves").trim_start().to_owned()
    };
    insta::assert_snapshot!(added(&with(VmKind::Qemu), "10.0.2"), @r"
    -device pcie-root-port,id=vmciport,chassis=1,addr=10
    -chardev socket,id=vmci0,fd=16
    -device vhost-user-vsock-pci,id=vmci0,chardev=vmci0,bus=vmciport
    ");
    insta::assert_snapshot!(added(&with(VmKind::Micro), "10.0.2"), @"--vmci socket=fd:12");
    assert!(added(&with(VmKind::Qemu), "7.2.22").ends_with(",vectors=0"), "an old QEMU gets no MSI-X");
}

#[test]
fn queue_pairs_are_an_nvdimm_in_an_inherited_file() {
    let with = |queue_pairs| VmSpec {
        vmci: Some(VmciSpec { queue_pairs, ..VmciSpec::default() }),
        ..direct(vec![])
    };
    let spec = with(Some(Bytes::mib(16)));
    let changed = |spec: &VmSpec, version| {
        let without = shown(&with(None), AcceleratorKind::Tcg, version);
        let is_new = |line: &&str| !without.lines().any(|other| other == *line);
        let text = shown(spec, AcceleratorKind::Tcg, version);
        text.lines().filter(is_new).flat_map(|line| [line, "\n"]).collect::<String>()
    };
    assert_eq!(changed(&with(Some(Bytes(0))), "7.2.22"), "");
    insta::assert_snapshot!(changed(&spec, "7.2.22"));
    assert_eq!(changed(&spec, "10.0.2"), changed(&spec, "7.2.22"));

    // Room alone makes the same machine without the device.
    let room = |queue_pairs, room| {
        let mut spec = with(queue_pairs);
        spec.vmci.as_mut().unwrap().queue_pairs_room = Some(Bytes::mib(room));
        changed(&spec, "10.0.2")
    };
    let with_room: Vec<_> = room(None, 64).lines().map(str::to_owned).collect();
    assert_eq!(
        with_room,
        [
            "-machine q35,dump-guest-core=off,memory-backend=mem0,nvdimm=on",
            "-m 128M,slots=1,maxmem=194M",
            "-append console=ttyS0 panic=-1 quiet hostname=db1 tsc=reliable mitigations=off swiotlb=2048 \
             debug quiet=0",
        ]
    );
    assert_eq!(room(None, 0), "");
    assert_eq!(room(Some(Bytes::mib(16)), 16), changed(&spec, "10.0.2"));
    assert!(room(Some(Bytes::mib(16)), 64).contains(",maxmem=194M\n"));

    let large = VmSpec { memory: Bytes::mib(4096), memory_reservation: MemoryReservation::Full, ..spec };
    let text = shown(&large, AcceleratorKind::Kvm, "10.0.2");
    assert!(text.contains("-m 4096M,slots=1,maxmem=4114M\n"), "{text}");
    assert!(text.contains("size=18874368,share=on,dump=off,prealloc=on\n"), "{text}");
    assert!(!text.contains("swiotlb"), "its memory reaches beyond 4 GiB: {text}");
}

/// The start under emulation and without tuning.
fn started(spec: &VmSpec, dir: &str, qemu: Option<&QemuInfo>) -> Result<Start, ApiError> {
    let launch = Launch {
        name: &"db1".parse().unwrap(),
        spec,
        paths: &RunPaths::new(dir),
        accelerator: &accelerator(AcceleratorKind::Tcg),
        qemu,
        libexec: Path::new("/usr/libexec/taut"),
        tuning: Tuning::default(),
        mtus: &BTreeMap::new(),
        disk: None,
    };
    launch.start()
}

#[test]
fn without_qemu_only_micro_vms_start() {
    let start = |spec: &VmSpec| started(spec, "/run/taut/vms/db1", None);
    let error = start(&direct(vec![])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.to_string().contains("QEMU"), "{error}");
    assert!(start(&VmSpec { kind: VmKind::Micro, ..VmSpec::default() }).is_ok());
}

#[test]
fn run_directories_that_sockets_or_options_cannot_name_are_refused() {
    let refused = |dir: &str| started(&direct(vec![]), dir, Some(&qemu("10.0.2"))).unwrap_err();
    assert!(refused(&format!("/run/{}", "x".repeat(95))).message.contains("Unix sockets allow 107"));
    assert!(refused("/run/a,b").message.contains("comma"));
}

#[test]
fn reserved_memory_is_locked_and_exclusive_vcpus_halt_by_themselves_under_kvm() {
    let mut spec = direct(vec![]);
    let has = |spec: &VmSpec, kind, words: &str| shown(spec, kind, "10.0.2").contains(words);
    assert!(
        !has(&spec, AcceleratorKind::Kvm, "-overcommit") && !has(&spec, AcceleratorKind::Kvm, "prealloc")
    );
    spec.memory_reservation = MemoryReservation::Full;
    assert!(has(&spec, AcceleratorKind::Kvm, "share=on,seal=on,dump=off,prealloc=on\n"));
    assert!(has(&spec, AcceleratorKind::Kvm, "-overcommit mem-lock=on\n"));
    spec.latency_sensitivity = LatencySensitivity::High;
    assert!(has(&spec, AcceleratorKind::Kvm, "-overcommit mem-lock=on,cpu-pm=on\n"));
    assert!(has(&spec, AcceleratorKind::Tcg, "-overcommit mem-lock=on\n"));
}

#[test]
fn what_idle_vcpus_do_under_kvm() {
    let mut text = String::new();
    for sensitivity in [LatencySensitivity::Normal, LatencySensitivity::High] {
        for (desched, spin) in
            [(None, None), (Some(false), Some(true)), (Some(true), Some(false)), (None, Some(true))]
        {
            let halt = HaltSpec { desched, spin, min_spin_us: Some(50) };
            let spec = VmSpec { halt, latency_sensitivity: sensitivity, ..direct(vec![]) };
            let shown = shown(&spec, AcceleratorKind::Kvm, "10.0.2");
            let line = |option: &str| shown.lines().find(|line| line.starts_with(option)).unwrap_or("-");
            let said = format!("{sensitivity:?}, desched {desched:?}, spin {spin:?}");
            text += &format!("{said}: {} {}\n", line("-cpu "), line("-overcommit "));
            let emulated = super::tests::shown(&spec, AcceleratorKind::Tcg, "10.0.2");
            assert!(!emulated.contains("kvm-") && !emulated.contains("cpu-pm"), "{emulated}");
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_vm_may_choose_its_accelerator() {
    let spec = |accelerator| VmSpec { accelerator, ..direct(vec![]) };
    let forced = shown(&spec(AcceleratorChoice::Kvm), AcceleratorKind::Tcg, "10.0.2");
    assert!(forced.contains("-accel kvm\n-cpu host,-arch-capabilities\n"), "{forced}");
    assert!(!forced.contains("tsc=reliable"), "{forced}");
    let emulated = shown(&spec(AcceleratorChoice::Tcg), AcceleratorKind::Kvm, "10.0.2");
    assert!(emulated.contains("-accel tcg,tb-size=64\n") && !emulated.contains("-cpu"), "{emulated}");
}

#[test]
fn a_disk_may_have_limits() {
    let limits = |bandwidth: Option<u64>, iops| {
        let limits = DiskLimits { bandwidth: bandwidth.map(Bytes), iops };
        let disk = Disk {
            path: "/d".into(),
            format: DiskFormat::Raw,
            bus: DiskBus::Virtio,
            snapshot: false,
            limits,
            shares: Shares::High,
        };
        let spec = VmSpec { disk: Some(disk), ..VmSpec::default() };
        let text = shown(&spec, AcceleratorKind::Tcg, "10.0.2");
        text.lines().find(|line| line.contains("qom-type")).unwrap().to_owned()
    };
    insta::assert_snapshot!(limits(Some(10 << 20), Some(80)), @r#"-object {"id":"disk0-limits","limits":{"bps-total":10485760,"iops-total":80},"qom-type":"throttle-group"}"#);
    assert!(limits(None, None).contains(r#""bps-total":0,"iops-total":0"#));
}

#[test]
fn pass_through_devices_have_root_ports_and_locked_memory() {
    let file = "memory_reservation = \"full\"\n[[passthrough]]\naddress = \"3b:00.1\"\n[[passthrough]]\naddress = \"0001:af:10.7\"\n";
    let spec: VmSpec = toml::from_str(file).unwrap();
    let text = shown(&VmSpec { boot: direct(vec![]).boot, ..spec }, AcceleratorKind::Kvm, "10.0.2");
    let lines: Vec<_> =
        text.lines().filter(|line| line.contains("handed") || line.contains("lock")).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    -overcommit mem-lock=on
    -device pcie-root-port,id=handed0port,chassis=18,addr=12
    -device vfio-pci,id=handed0,host=0000:3b:00.1,bus=handed0port
    -device pcie-root-port,id=handed1port,chassis=19,addr=13
    -device vfio-pci,id=handed1,host=0001:af:10.7,bus=handed1port
    ");
}
