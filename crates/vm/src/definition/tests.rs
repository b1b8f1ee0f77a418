use proptest::prelude::*;
use taut_api::vm::{DiskBus, NicModel, Power};
use tempfile::TempDir;

use super::*;

/// A folder with a kernel, an initrd and a disk.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["vmlinuz", "initrd", "disk.img"] {
        std::fs::write(dir.path().join(name), b"x").unwrap();
    }
    dir
}

fn request(dir: &TempDir, format: VmFormat, text: &str) -> CreateVm {
    CreateVm {
        name: None,
        format,
        text: text.to_owned(),
        base_dir: dir.path().to_str().unwrap().to_owned(),
        power: Power::Off,
        default_portgroup: None,
    }
}

fn toml(text: &str) -> Result<Parsed, ApiError> {
    let dir = folder();
    parse(&request(&dir, VmFormat::Toml, text))
}

#[test]
fn a_file_becomes_a_spec_with_absolute_paths_and_addresses() {
    let dir = folder();
    let text = "name = \"db1\"\nmemory = \"512MiB\"\n[boot]\nkernel = \"vmlinuz\"\ninitrd = \"initrd\"\n\
                [[nic]]\nportgroup = \"lan\"\n[[nic]]\nportgroup = \"lan\"\nmodel = \"e1000\"\n";
    let parsed = parse(&request(&dir, VmFormat::Toml, text)).unwrap();
    assert_eq!(parsed.name.as_ref().map(Name::as_str), Some("db1"));
    let boot = parsed.spec.boot.as_ref().unwrap();
    assert_eq!(Path::new(&boot.kernel), dir.path().join("vmlinuz"));
    assert_eq!(Path::new(boot.initrd.as_ref().unwrap()), dir.path().join("initrd"));
    assert_eq!(parsed.spec.nics[0].mac, Some(MacAddr::derived("db1", 0)));
    assert_eq!(parsed.spec.nics[1].mac, Some(MacAddr::derived("db1", 1)));
    assert_eq!(parsed.spec.nics[1].model, NicModel::E1000);

    let named = CreateVm { name: Some("other".parse().unwrap()), ..request(&dir, VmFormat::Toml, text) };
    let parsed = parse(&named).unwrap();
    assert_eq!(parsed.name.as_ref().map(Name::as_str), Some("other"), "the request's name counts");
    assert_eq!(parsed.spec.nics[0].mac, Some(MacAddr::derived("other", 0)));
}

/// What `taut vm create --help` shows.
const EVERY_KEY: &str = include_str!("../../../../demo/vm.toml");

#[test]
fn the_file_with_every_key_is_accepted() {
    let parsed = toml(EVERY_KEY).unwrap();
    assert_eq!(parsed.name.unwrap().as_str(), "web1");
    let uncommented =
        EVERY_KEY.replace("\n# [", "\n[").replace("\n# kernel", "\nkernel").replace("\n# initrd", "\ninitrd");
    let spec = toml(&uncommented.replace("\n# cmdline", "\ncmdline").replace("\n# address", "\naddress"));
    let error = spec.unwrap_err().to_string();
    assert!(
        error.contains("memory_reservation"),
        "all that is wrong is what it says of pass-through: {error}"
    );
}

#[test]
fn the_file_with_every_key_has_every_key() {
    let tables = [
        "",
        "[boot]",
        "[cpu]",
        "[disk]",
        "[disk.limits]",
        "[halt]",
        "[[nic]]",
        "[nic.rings]",
        "[nic.shaping]",
        "[nic.shaping.to_guest]",
        "[[passthrough]]",
        "[placement]",
        "[vmci]",
    ];
    for table in tables {
        // The reader names what it knows.
        let table = match table.strip_prefix("[nic.") {
            Some(rest) => format!("[[nic]]\n[nic.{rest}"),
            None => table.to_owned(),
        };
        let error = toml(&format!("{table}\nno-such-key = 1\n")).unwrap_err().to_string();
        let known: Vec<_> = error.split('`').skip(3).step_by(2).filter(|key| !key.contains(' ')).collect();
        assert!(error.contains("unknown field `no-such-key`") && !known.is_empty(), "{table}: {error}");
        for key in known {
            let word = |c: char| !c.is_alphanumeric() && c != '_';
            assert!(
                EVERY_KEY.split(word).any(|there| there == key),
                "{table}: `{key}` is not in demo/vm.toml"
            );
        }
    }
}

#[test]
fn paths_that_are_absolute_already_stay() {
    let dir = folder();
    let disk = dir.path().join("disk.img");
    let text = format!("[disk]\npath = \"{}\"\nbus = \"sata\"\n", disk.display());
    let parsed =
        parse(&CreateVm { base_dir: "/nowhere".into(), ..request(&dir, VmFormat::Toml, &text) }).unwrap();
    let found = parsed.spec.disk.unwrap();
    assert_eq!((Path::new(&found.path), found.bus), (disk.as_path(), DiskBus::Sata));
}

#[test]
fn faults_are_named_with_their_values_and_a_hint() {
    let nic = "kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\n";
    let names: Vec<_> = (0..65).map(|n| format!("\"d{n}\"")).collect();
    let domains = format!("kind = \"micro\"\n[vmci]\ndomains = [{}]\n", names.join(", "));
    let many = format!("kind = \"micro\"\n{}", "[[nic]]\nportgroup = \"lan\"\n".repeat(33));
    for (text, message, hint) in [
        ("vcpu = 2\n", "line 1: unknown field `vcpu`", "did you mean `vcpus`?"),
        ("\n\n[boot]\nkernal = \"x\"\n", "line 4: unknown field `kernal`", "did you mean `kernel`?"),
        (
            "[boot]\nkernel = \"vmlinuz\"\nzzzzzzzzzz = 1\n",
            "unknown field `zzzzzzzzzz`",
            "known here: kernel, initrd, cmdline",
        ),
        ("kind = \"vmware\"\n", "unknown variant `vmware`", "known here: qemu, micro"),
        ("name = 7\n", "line 1: `name` is not text", "name = \"db1\""),
        ("vcpus = 1\nname = \"a b\"\n", "line 2: `a b` is not a usable name", "--name"),
        ("this is not = = toml", "line 1: ", ""),
        ("memory = \"3 parsecs\"\n", "`3 parsecs` is not a size", ""),
        ("kind = \"micro\"\nmemory = \"1KiB\"\n", "memory = 1KiB is outside 16MiB to 64TiB", "512MiB"),
        ("memory = \"62MiB\"\n", "memory = 62MiB is outside 64MiB", ""),
        ("memory = \"65TiB\"\n", "memory = 65TiB is outside", ""),
        ("memory = \"129MiB\"\n", "memory = 129MiB is not a multiple of 2MiB", "use 130MiB"),
        ("vcpus = 0\n", "vcpus = 0 is outside 1 to 256", ""),
        ("vcpus = 257\n", "vcpus = 257 is outside", ""),
        (
            "memory = \"64MiB\"\nmemory_reservation = \"66MiB\"\n",
            "66MiB is more than its memory of 64MiB",
            "full",
        ),
        ("memory_reservation = \"half\"\n", "`half` is no memory reservation", ""),
        ("[cpu]\nreservation = \"2.4GHz\"\n", "`2.4GHz` is no CPU reservation", ""),
        ("[cpu]\nweight = \"high\"\n", "line 2: unknown field `weight`", "known here: reservation"),
        (
            "kind = \"micro\"\nvcpus = 2\nlatency_sensitivity = \"high\"\n",
            "one vCPU, and 2 would own a pCPU each",
            "vcpus = 1",
        ),
        ("", "neither [boot] nor [disk]", "add [boot]"),
        ("kind = \"micro\"\n[disk]\npath = \"disk.img\"\n", "a micro VM has neither", ""),
        ("[boot]\nkernel = \"no-such\"\n", "/no-such` cannot be read", "relative paths"),
        ("[boot]\nkernel = \"vmlinuz\"\ninitrd = \"gone\"\n", "the initrd `", ""),
        ("[boot]\nkernel = \".\"\n", "is not a file", ""),
        ("[disk]\npath = \".\"\n", "is not a file or block device", ""),
        ("[boot]\nkernel = \"vmlinuz\"\ncmdline = \"a\\nb\"\n", "control character '\\n'", "one line"),
        (
            &format!("{nic}mac = \"01:00:00:00:00:01\"\n"),
            "01:00:00:00:00:01 is no address for a card",
            "even",
        ),
        (&format!("{nic}mac = \"02:1\"\n"), "`02:1` is not an Ethernet address", ""),
        (&format!("{nic}rings = {{ rx = 100, tx = 256 }}\n"), "rx = 100 descriptors", "128"),
        (&format!("{nic}rings = {{ tx = 2048 }}\n"), "tx = 2048 descriptors", ""),
        (&format!("{nic}queues = 9\n"), "9 is no number of queue pairs", ""),
        (
            &format!("{nic}queues = 2\n"),
            "2 pairs of queues are offered by virtio cards of QEMU's only",
            "one pair",
        ),
        (&format!("{nic}model = \"e1000\"\n"), "a micro VM drives only virtio", ""),
        (&format!("{nic}ip = \"10.0.0.1\"\n"), "`10.0.0.1` is not an IPv4 address with prefix", ""),
        (&many, "33 vNICs, more than 32", ""),
        (
            "kind = \"micro\"\n[vmci]\ncid = 2\n",
            "context ID 2: 0 to 2 and 4294967295 have meanings",
            "from 3 to 4294967294",
        ),
        ("kind = \"micro\"\n[vmci]\ncid = 4294967295\n", "context ID 4294967295", "leave `cid` out"),
        ("kind = \"micro\"\n[vmci]\ncid = -3\n", "line 3: invalid value: integer `-3`", ""),
        ("kind = \"micro\"\n[vmci]\nconnections = 65537\n", "connections = 65537 is outside 1 to 65536", ""),
        ("kind = \"micro\"\n[vmci]\nconnections = 0\n", "connections = 0 is outside", "needs no [vmci]"),
        (
            "kind = \"micro\"\n[vmci]\nconnections = 9\nhalf_open = 10\n",
            "half_open = 10 is outside 1 to 9",
            "count as connections",
        ),
        (
            "kind = \"micro\"\n[vmci]\ndomains = [\"a\", \"b\", \"a\"]\n",
            "the domain `a` is named twice",
            "once",
        ),
        ("kind = \"micro\"\n[vmci]\ndomains = [\"a b\"]\n", "`a b` is not a usable name", ""),
        (&domains, "65 domains are more than 64", "one domain"),
    ] {
        let error = toml(text).expect_err(text);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(message), "{text}\n{error}");
        assert!(!error.hint.is_empty() && error.hint.contains(hint), "{text}\n{error}");
    }
}

#[test]
fn one_address_twice_names_both_cards() {
    let nic = "[[nic]]\nportgroup = \"lan\"\nmac = \"02:00:00:00:00:01\"\n";
    let error = toml(&format!("kind = \"micro\"\n{nic}[[nic]]\nportgroup = \"lan\"\n{nic}")).unwrap_err();
    assert!(error.message.contains("nics 0 and 2 have the same address 02:00:00:00:00:01"), "{error}");
}

#[test]
fn a_relative_base_or_an_enormous_file_is_refused() {
    let dir = folder();
    let relative = CreateVm { base_dir: "here".into(), ..request(&dir, VmFormat::Toml, "") };
    assert!(parse(&relative).unwrap_err().message.contains("`here`"));
    let enormous = request(&dir, VmFormat::Toml, &" ".repeat(MAX_FILE + 1));
    assert!(parse(&enormous).unwrap_err().message.contains("1048577 bytes"));
}

#[test]
fn cards_of_a_vmx_on_unknown_networks_go_to_the_default_and_the_report_says_so() {
    let dir = folder();
    let text = "displayName = \"old\"\nide0:0.present = \"TRUE\"\nide0:0.fileName = \"disk.img\"\n\
                ethernet0.present = \"TRUE\"\nethernet0.networkName = \"lan\"\n\
                ethernet1.present = \"TRUE\"\nethernet1.networkName = \"gone\"\n";
    let mut parsed = parse(&request(&dir, VmFormat::Vmx, text)).unwrap();
    let lan: Name = "lan".parse().unwrap();
    parsed.replace_unknown_portgroups(|name| *name == lan, &lan);
    assert!(parsed.spec.nics.iter().all(|nic| nic.portgroup == lan));
    let fate = |key: &str| parsed.imported.iter().find(|k| k.key == key).unwrap().fate.clone();
    assert_eq!(fate("ethernet0.networkName"), Fate::Understood { field: "nic[0].portgroup".into() });
    let note = "lan: there is no port group `gone`".to_owned();
    assert_eq!(fate("ethernet1.networkName"), Fate::Mapped { field: "nic[1].portgroup".into(), note });
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = toml(&text);
    }
}
