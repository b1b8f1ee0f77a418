use proptest::prelude::*;
use taut_api::vm::{DiskBus, NicModel, Power};
use tempfile::TempDir;

use taut_api::error::ErrorKind;
use taut_api::import::Fate;

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

#[test]
fn a_kernel_that_is_a_fifo_or_a_device_is_refused_without_being_opened() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = folder();
    // Opening it for reading would wait for a writer.
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    for kernel in [fifo.to_str().unwrap(), "/dev/null"] {
        let error = toml(&format!("name = \"a\"\n[boot]\nkernel = \"{kernel}\"\n")).unwrap_err();
        assert!(error.to_string().contains(&format!("the kernel `{kernel}` is not a file")), "{error}");
    }
}

/// The VM file that `taut vm create --help` shows.
const EVERY_KEY: &str = include_str!("../../../../demo/vm.toml");

#[test]
fn the_example_file_is_accepted() {
    let parsed = toml(EVERY_KEY).unwrap();
    assert_eq!(parsed.name.unwrap().as_str(), "web1");
    let uncommented =
        EVERY_KEY.replace("\n# [", "\n[").replace("\n# kernel", "\nkernel").replace("\n# initrd", "\ninitrd");
    let spec = toml(&uncommented.replace("\n# cmdline", "\ncmdline").replace("\n# address", "\naddress"));
    let error = spec.unwrap_err().to_string();
    assert!(error.contains("memory_reservation"), "the only fault is that of pass-through: {error}");
}

#[test]
fn the_example_file_has_every_key() {
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
        // The error of the reader lists the known keys.
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
fn absolute_paths_stay() {
    let dir = folder();
    let disk = dir.path().join("disk.img");
    let text = format!("[disk]\npath = \"{}\"\nbus = \"sata\"\n", disk.display());
    let parsed =
        parse(&CreateVm { base_dir: "/nowhere".into(), ..request(&dir, VmFormat::Toml, &text) }).unwrap();
    let found = parsed.spec.disk.unwrap();
    assert_eq!((Path::new(&found.path), found.bus), (disk.as_path(), DiskBus::Sata));
}

/// VM files that are refused, with a part of the message and of the hint.
fn refused_files() -> impl Iterator<Item = (String, &'static str, &'static str)> {
    let cases = include_str!("refused.txt").split("\n=== message: ").skip(1);
    cases.map(|case| {
        let (message, rest) = case.split_once("\n=== hint: ").unwrap();
        let (hint, text) = rest.split_once('\n').unwrap();
        (text.to_owned(), message, hint)
    })
}

#[test]
fn faults_are_named_with_their_values_and_a_hint() {
    let names: Vec<_> = (0..65).map(|n| format!("\"d{n}\"")).collect();
    let domains = format!("kind = \"micro\"\n[vmci]\ndomains = [{}]\n", names.join(", "));
    let many = format!("kind = \"micro\"\n{}", "[[nic]]\nportgroup = \"lan\"\n".repeat(33));
    let long = [(many, "33 vNICs, more than 32", ""), (domains, "65 domains are more than 64", "one domain")];
    for (text, message, hint) in refused_files().chain(long) {
        let error = toml(&text).expect_err(&text);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(message), "{text}\n{error}");
        assert!(!error.hint.is_empty() && error.hint.contains(hint), "{text}\n{error}");
    }
}

#[test]
fn an_address_used_twice_names_both_cards() {
    let nic = "[[nic]]\nportgroup = \"lan\"\nmac = \"02:00:00:00:00:01\"\n";
    let error = toml(&format!("kind = \"micro\"\n{nic}[[nic]]\nportgroup = \"lan\"\n{nic}")).unwrap_err();
    assert!(error.message.contains("nics 0 and 2 have the same address 02:00:00:00:00:01"), "{error}");
}

#[test]
fn a_relative_base_or_a_huge_file_is_refused() {
    let dir = folder();
    let relative = CreateVm { base_dir: "here".into(), ..request(&dir, VmFormat::Toml, "") };
    assert!(parse(&relative).unwrap_err().message.contains("`here`"));
    let enormous = request(&dir, VmFormat::Toml, &" ".repeat(MAX_FILE + 1));
    assert!(parse(&enormous).unwrap_err().message.contains("1048577 bytes"));
}

#[test]
fn vmx_cards_on_unknown_networks_move_to_the_default_port_group() {
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

#[test]
fn first_hour_sizes_that_cannot_be_meant_are_refused() {
    let disk = "[disk]\npath = \"disk.img\"\n";
    for (line, told) in [
        ("memory = 1024", "memory = 1KiB (1024 bytes) is outside 64MiB to 64TiB"),
        ("memory_reservation = \"128\"", "memory_reservation = 128 (128 bytes) is less than 1MiB"),
        ("memory_limit = \"512k\"", "memory_limit = 512KiB (524288 bytes) is less than 1MiB"),
    ] {
        let error = toml(&format!("{line}\n{disk}")).unwrap_err();
        assert_eq!(error.message, told);
        assert!(error.hint.contains("a number without a unit is bytes"), "{error}");
    }
    let error = toml(&format!("{disk}limits = {{ bandwidth = 100 }}\n")).unwrap_err();
    assert!(error.message.starts_with("disk.limits.bandwidth = 100 is outside 4096 to "), "{error}");
    assert!(toml(&format!("memory = \"64MB\"\nmemory_limit = \"1M\"\n{disk}")).is_ok());
}
