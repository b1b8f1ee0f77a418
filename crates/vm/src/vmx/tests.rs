//! Realistic files as snapshots, and hostile files as properties.

use std::fmt::Write as _;

use proptest::prelude::*;
use taut_api::import::Fate;
use taut_api::link::WantedLink;

use super::*;

/// Spec and report of a `.vmx`, as text.
fn report(text: &str, default_portgroup: Option<&str>) -> String {
    let default = default_portgroup.map(|name| name.parse().unwrap());
    let parsed = match import(text, default.as_ref()) {
        Ok(parsed) => parsed,
        Err(error) => return error.to_string(),
    };
    let name = parsed.name.map(|name| format!("name = \"{name}\"\n")).unwrap_or_default();
    let mut shown = format!("{name}{}\n", toml::to_string(&parsed.spec).unwrap());
    for key in &parsed.imported {
        let fate = match &key.fate {
            Fate::Understood { field } => format!("understood  {field}"),
            Fate::Mapped { field, note } => format!("mapped      {field}: {note}"),
            Fate::Reported { note } => format!("reported    {note}"),
            Fate::Ignored => "ignored".to_owned(),
        };
        let _ = writeln!(shown, "{} = \"{}\"\n    {fate}", key.key, key.value);
    }
    shown
}

#[test]
fn web_server_with_two_cards() {
    insta::assert_snapshot!(report(include_str!("../../tests/vmx/web-two-cards.vmx"), None));
}

#[test]
fn machine_tuned_for_latency() {
    insta::assert_snapshot!(report(include_str!("../../tests/vmx/latency-tuned.vmx"), None));
}

#[test]
fn machine_of_esx_2_with_four_cards() {
    insta::assert_snapshot!(report(include_str!("../../tests/vmx/esx2-four-cards.vmx"), None));
}

#[test]
fn file_with_next_to_nothing() {
    let text = include_str!("../../tests/vmx/minimal.vmx");
    insta::assert_snapshot!(report(text, Some("lan")));
    assert!(report(text, None).contains("ethernet0 is on no network"));
}

#[test]
fn a_card_that_is_not_connected_at_the_start_has_its_link_down() {
    let text = |connected: &str| {
        format!(
            "scsi0:0.present = \"TRUE\"\nscsi0:0.fileName = \"d.vmdk\"\nethernet0.present = \"TRUE\"\n\
             ethernet0.networkName = \"lan\"\nethernet0.startConnected = \"{connected}\"\n"
        )
    };
    let link = |connected: &str| {
        let parsed = import(&text(connected), None).unwrap();
        let key = parsed.imported.iter().find(|key| key.key.ends_with("startConnected")).unwrap();
        assert_eq!(key.fate, Fate::Understood { field: "nic[0].link".to_owned() });
        parsed.spec.nics[0].link
    };
    assert_eq!((link("FALSE"), link("TRUE")), (WantedLink::Down, WantedLink::Up));
}

#[test]
fn faults_are_named_with_line_key_and_value() {
    const DISK: &str = "ide0:0.present = \"TRUE\"\nide0:0.fileName = \"d.img\"\n";
    for (text, expected) in [
        ("", "the .vmx contains no settings"),
        ("memSize = \"512\"\n", "the .vmx names no hard disk that is present"),
        ("memSize = \"lots\"\n", "line 1: memSize = \"lots\" is not a size in MB"),
        ("memSize = \"18446744073709551615\"\n", "more than any machine has"),
        ("numvcpus = \"-1\"\n", "line 1: numvcpus = \"-1\" is not a number of virtual CPUs"),
        (
            "memSize = \"512\"\nMEMSIZE = \"1024\"\n",
            "MEMSIZE is set twice: \"512\" in line 1 and \"1024\" in line 2",
        ),
        (
            "ethernet0.present = \"TRUE\"\nethernet0.networkName = \"x\"\nethernet0.address = \"zz\"\n",
            "line 3: ethernet0.address = \"zz\"",
        ),
        (
            "ethernet7.present = \"TRUE\"\nethernet7.networkName = \"--\"\n",
            "ethernet7 is on the network \"--\"",
        ),
    ] {
        let text = if expected.contains("hard disk") { text.to_owned() } else { format!("{text}{DISK}") };
        let text = if expected.contains("no settings") { String::new() } else { text };
        let error = import(&text, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_vmci_device_is_taken_over() {
    let vmx = |lines: &str| {
        let text = format!("{lines}ide0:0.present = \"TRUE\"\nide0:0.fileName = \"d.img\"\n");
        let parsed = import(&text, None).unwrap();
        let notes = parsed.imported.into_iter().map(|key| match key.fate {
            Fate::Understood { .. } => "understood".to_owned(),
            Fate::Mapped { note, .. } | Fate::Reported { note } => note,
            Fate::Ignored => "ignored".to_owned(),
        });
        (parsed.spec.vmci, notes.collect::<Vec<_>>())
    };
    let device = "vmci0.present = \"TRUE\"\n";
    let cid = |id: &str| {
        let (vmci, notes) = vmx(&format!("{device}vmci0.id = \"{id}\"\n"));
        (vmci.unwrap().cid.map(|cid| cid.0), notes[1].clone())
    };
    assert_eq!(cid("1027481093"), (Some(1_027_481_093), "understood".into()));
    assert_eq!(cid("-1204873"), (Some(4_293_762_423), "4293762423: the same 32 bits without a sign".into()));
    for id in ["-1", "0", "2", "4294967295", "4294967296", "-2147483649"] {
        assert_eq!(cid(id), (None, "this context ID is reserved: taut assigns another one".into()), "{id}");
    }
    let (vmci, notes) = vmx(&format!("{device}vmci0.domain = \"trading floor\"\nvmci1.present = \"TRUE\"\n"));
    assert_eq!(vmci.unwrap().domains, ["trading-floor".parse().unwrap()]);
    assert!(notes[1].starts_with("trading-floor: names consist of"), "{notes:?}");
    assert_eq!(notes[2], "a VM has one VMCI device, vmci0");
    let (vmci, notes) = vmx("vmci0.present = \"FALSE\"\nvmci0.id = \"77\"\n");
    assert_eq!(vmci, None);
    assert_eq!(notes[..2], ["the VMCI device is not present"; 2]);
    let text =
        format!("{device}vmci0.id = \"many\"\nide0:0.present = \"TRUE\"\nide0:0.fileName = \"d.img\"\n");
    let error = import(&text, None).unwrap_err().to_string();
    assert!(error.contains("line 2: vmci0.id = \"many\" is not a context ID of 32 bits"), "{error}");
}

#[test]
fn a_repeated_line_is_accepted() {
    let text =
        "memSize = \"512\"\nmemsize = \"512\"\nide0:0.present = \"TRUE\"\nide0:0.fileName = \"d.img\"\n";
    let parsed = import(text, None).unwrap();
    assert_eq!(parsed.imported[1].fate, Fate::Reported { note: "the same as line 1".into() });
}

/// Lines that are likely to be understood.
fn line() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        "(ethernet|scsi|ide|nvme|sata)[0-9]{1,12}(:[0-9]{0,12})?\\.(present|fileName|virtualDev|networkName|address|mode)",
        "(memSize|numvcpus|displayName|guestOS|sched\\.cpu\\.latencySensitivity|[a-z.]{0,12})",
    ];
    let value = prop_oneof!["TRUE", "[0-9]{0,25}", "[a-z0-9:.|]{0,12}", "\\PC{0,20}"];
    (key, value).prop_map(|(key, value)| format!("{key} = \"{value}\""))
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = import(&text, None);
    }

    #[test]
    fn likely_lines_are_read_or_refused(lines in prop::collection::vec(line(), 0..30)) {
        let text = lines.join("\n");
        let default = "lan".parse().unwrap();
        if let Ok(parsed) = import(&text, Some(&default)) {
            prop_assert_eq!(parsed.imported.len(), lines.iter().filter(|line| !line.trim().starts_with('#')).count());
        }
    }
}

/// PL11: each key of the best practices takes effect, or its note names the counterpart on Linux.
#[test]
fn keys_of_the_best_practices_have_a_counterpart() {
    let cases: [(&str, &str, &str); 10] = [
        ("monitor_control.halt_desched", "FALSE", "cpu-pm=on"),
        ("monitor_control.halt_desched", "TRUE", "gives its pCPU away"),
        ("monitor.idleLoopSpinBeforeHalt", "true", "this VM has one"),
        ("monitor.idleLoopSpinBeforeHaltUP", "true", "haltpoll"),
        ("monitor.idleLoopSpinBeforeHaltUP", "false", "halt_poll_ns"),
        ("monitor.idleLoopMinSpinUS", "250", "halt.min_spin_us: 250"),
        ("numa.nodeAffinity", "0,1", "placement.nodes"),
        ("numa.vcpu.min", "4", "placement.min_vcpus"),
        ("numa.vcpu.preferHT", "TRUE", "cpuset.cpus"),
        ("ethernet0.coalescingScheme", "disabled", "nic[0].coalescing"),
    ];
    for (key, value, counterpart) in cases {
        let spin = if key.ends_with("MinSpinUS") { "" } else { "monitor.idleLoopMinSpinUS = \"250\"\n" };
        let text = format!(
            "nvme0.present = \"TRUE\"\nnvme0:0.present = \"TRUE\"\nnvme0:0.fileName = \"a.vmdk\"\n\
             ethernet0.present = \"TRUE\"\nethernet0.networkName = \"lan\"\n{spin}{key} = \"{value}\"\n"
        );
        let parsed = import(&text, None).unwrap();
        let found = parsed.imported.iter().find(|imported| imported.key == key).unwrap();
        let said = match &found.fate {
            Fate::Understood { field } => field.clone(),
            Fate::Mapped { field, note } => format!("{field}: {note}"),
            Fate::Reported { note } => note.clone(),
            Fate::Ignored => "ignored".to_owned(),
        };
        assert!(said.contains(counterpart), "{key} = {value}: {said}");
    }
}

#[test]
fn shares_and_limits_are_taken_over() {
    let read = |lines: &str| {
        let text =
            format!("memSize = \"256\"\n{lines}ide0:0.present = \"TRUE\"\nide0:0.fileName = \"d.img\"\n");
        import(&text, None).map(|parsed| {
            let spec = parsed.spec;
            [
                spec.cpu.shares.to_string(),
                spec.cpu.limit.to_string(),
                spec.memory_shares.to_string(),
                spec.memory_limit.to_string(),
            ]
        })
    };
    let all = "sched.cpu.shares = \"high\"\nsched.cpu.max = \"1200\"\nsched.mem.shares = \"333\"\nsched.mem.max = \"128\"\n";
    assert_eq!(read(all).unwrap(), ["high", "1200MHz", "333", "128MiB"]);
    let none = "sched.cpu.max = \"unlimited\"\nsched.mem.max = \"-1\"\nsched.cpu.shares = \"7000000\"\nsched.mem.shares = \"lots\"\n";
    assert_eq!(read(none).unwrap(), ["1000000", "none", "normal", "none"]);
    assert_eq!(read("sched.mem.max = \"256\"\n").unwrap()[3], "none", "it limits nothing");
    let error = read("sched.cpu.max = \"some\"\n").unwrap_err().to_string();
    assert!(
        error.contains("line 2: sched.cpu.max = \"some\" is not a number of MHz, or unlimited"),
        "{error}"
    );
}

#[test]
fn idle_vcpus_and_limits_of_the_disk_are_taken_over() {
    let read = |lines: &str| {
        let text =
            format!("numvcpus = \"2\"\nscsi0:0.present = \"TRUE\"\nscsi0:0.fileName = \"d.img\"\n{lines}");
        import(&text, None).map(|parsed| parsed.spec)
    };
    let halt = |lines: &str| {
        let halt = read(lines).unwrap().halt;
        (halt.desched, halt.spin, halt.min_spin_us)
    };
    let all = "monitor_control.halt_desched = \"FALSE\"\nmonitor.idleLoopSpinBeforeHalt = \"TRUE\"\nmonitor.idleLoopMinSpinUS = \"40\"\n";
    assert_eq!(halt(all), (Some(false), Some(true), Some(40)));
    assert_eq!(halt("monitor.idleLoopSpinBeforeHaltUP = \"TRUE\"\n"), (None, None, None), "it has two vCPUs");
    assert_eq!(halt("monitor.idleLoopMinSpinUS = \"99999\"\n").2, Some(10_000));
    assert!(read("monitor.idleLoopMinSpinUS = \"long\"\n").is_err());

    let limits = |value: &str| {
        let limits =
            read(&format!("sched.scsi0:0.throughputCap = \"{value}\"\n")).unwrap().disk.unwrap().limits;
        (limits.bandwidth.map(|bandwidth| bandwidth.0), limits.iops)
    };
    assert_eq!(limits("80IOPS"), (None, Some(80)));
    assert_eq!(limits("80"), (None, Some(80)));
    assert_eq!(limits("10MBps"), (Some(10 << 20), None));
    for none in ["off", "unlimited", "fast", "-5", "99999999999999999GBps"] {
        assert_eq!(limits(none), (None, None), "{none}");
    }
    let shares = |value: &str| {
        read(&format!("sched.scsi0:0.shares = \"{value}\"\n")).unwrap().disk.unwrap().shares.to_string()
    };
    assert_eq!(["high", "700", "whatever"].map(shares), ["high", "700", "normal"]);
}
