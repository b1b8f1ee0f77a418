use proptest::prelude::*;

use super::*;

/// A document with every part that passes the checks.
fn full() -> Document {
    let mut document = Document::new(10, vec!["vm".to_owned(), "-x".to_owned()], 70_000, 70_001, Filter::Vm);
    document.env = vec!["PATH=/usr/bin".to_owned(), "EMPTY=".to_owned()];
    document.keep = vec![11, 12];
    document.limits = Limits {
        nofile: Some(Limit::At(4096)),
        nproc: Some(Limit::At(68)),
        memlock: Some(Limit::Unlimited),
        address_space: Some(Limit::At(64 << 20)),
        cpu_seconds: Some(Limit::At(1)),
    };
    document.oom_score_adj = Some(0);
    document.root = Root {
        skeleton: Some(13),
        system: vec!["/usr".into(), "/lib".into()],
        read_only: vec!["/sys/bus/pci".into()],
        writable: vec!["/srv/share".into()],
        devices: vec![Device { path: "/dev/vfio/vfio".into(), major: 10, minor: 196, mode: 0o600 }],
        proc: true,
        tmp: Some(1 << 20),
    };
    document.landlock = Landlock {
        read: vec!["/proc".into()],
        execute: vec!["/usr".into()],
        write: vec!["/srv/share".into()],
        devices: vec!["/dev".into()],
    };
    document.may_lack = [Wall::Landlock, Wall::LandlockScope].into();
    document
}

/// Returns the field and the rule for which a changed document is refused.
fn refused(change: impl FnOnce(&mut Document)) -> (&'static str, Rule) {
    let mut document = full();
    change(&mut document);
    match document.check() {
        Err(DocumentError::Value { field, rule, .. }) => (field, rule),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_document_survives_its_bytes() {
    let document = full();
    assert_eq!(Document::parse(&document.to_bytes().unwrap()).unwrap(), document);
}

#[test]
fn a_short_document_has_all_namespaces_and_nothing_reachable() {
    let text = r#"{"program":10,"args":["vm"],"uid":1,"gid":1,"filter":"none"}"#;
    let document = Document::parse(text.as_bytes()).unwrap();
    assert_eq!(document, Document::new(10, vec!["vm".to_owned()], 1, 1, Filter::None));
    assert!(document.namespaces.mount && document.namespaces.pid && document.namespaces.cgroup);
    assert_eq!(document.root, Root::default());
    assert!(document.may_lack.is_empty());
}

#[test]
fn unknown_fields_and_missing_filters_are_refused() {
    for text in [
        r#"{"program":10,"args":["vm"],"uid":1,"gid":1,"filter":"none","privileged":true}"#,
        r#"{"program":10,"args":["vm"],"uid":1,"gid":1}"#,
        r#"{"program":10,"args":["vm"],"uid":1,"gid":1,"filter":"none","namespaces":{"user":true}}"#,
        r#"{"program":10,"args":["vm"],"uid":-1,"gid":1,"filter":"none"}"#,
        r#"{"program":10,"args":["vm"],"uid":1,"gid":1,"filter":"none"} {}"#,
        "",
    ] {
        assert!(matches!(Document::parse(text.as_bytes()), Err(DocumentError::Form(_))), "{text}");
    }
}

#[test]
fn a_long_document_is_refused_before_it_is_parsed() {
    let long = vec![b' '; MAX_DOCUMENT + 1];
    assert!(
        matches!(Document::parse(&long), Err(DocumentError::TooLong { size }) if size == MAX_DOCUMENT + 1)
    );
    let mut document = full();
    document.args.push("x".repeat(MAX_DOCUMENT));
    assert!(matches!(document.to_bytes(), Err(DocumentError::TooLong { .. })));
}

#[test]
fn numbers_of_descriptors_are_checked() {
    assert_eq!(refused(|d| d.program = 9), ("program", Rule::Descriptor));
    assert_eq!(refused(|d| d.program = i32::MAX), ("program", Rule::Descriptor));
    assert_eq!(refused(|d| d.keep = vec![4]), ("keep", Rule::Descriptor));
    assert_eq!(refused(|d| d.keep = vec![-1]), ("keep", Rule::Descriptor));
    assert_eq!(refused(|d| d.keep = vec![11, 11]), ("keep", Rule::Once));
    assert_eq!(refused(|d| d.keep = (10..5000).collect()), ("keep", Rule::Entries));
    assert_eq!(refused(|d| d.root.skeleton = Some(11)), ("root.skeleton", Rule::OwnDescriptor));
    assert_eq!(refused(|d| d.root.skeleton = Some(10)), ("root.skeleton", Rule::OwnDescriptor));
    assert_eq!(refused(|d| d.root.skeleton = Some(3)), ("root.skeleton", Rule::Descriptor));
}

#[test]
fn the_process_is_never_root() {
    assert_eq!(refused(|d| d.uid = 0), ("uid", Rule::NotRoot));
    assert_eq!(refused(|d| d.gid = 0), ("gid", Rule::NotRoot));
    assert_eq!(refused(|d| d.uid = u32::MAX), ("uid", Rule::NotRoot));
    assert_eq!(refused(|d| d.gid = u32::MAX), ("gid", Rule::NotRoot));
}

#[test]
fn arguments_and_variables_are_texts_for_the_kernel() {
    assert_eq!(refused(|d| d.args.clear()), ("args", Rule::NotEmpty));
    assert_eq!(refused(|d| d.args.push("a\0b".to_owned())), ("args", Rule::NoZeroByte));
    assert_eq!(refused(|d| d.env.push("A=\0".to_owned())), ("env", Rule::NoZeroByte));
    assert_eq!(refused(|d| d.env.push("A".to_owned())), ("env", Rule::Variable));
    assert_eq!(refused(|d| d.env.push("=A".to_owned())), ("env", Rule::Variable));
}

#[test]
fn limits_leave_room_for_the_descriptors() {
    assert_eq!(refused(|d| d.limits.nofile = Some(Limit::At(63))), ("limits.nofile", Rule::AboveDescriptors));
    assert_eq!(refused(|d| d.keep.push(4096)), ("limits.nofile", Rule::AboveDescriptors));
    assert_eq!(refused(|d| d.limits.cpu_seconds = Some(Limit::At(0))), ("limits.cpu_seconds", Rule::NotZero));
    assert_eq!(refused(|d| d.oom_score_adj = Some(-1001)), ("oom_score_adj", Rule::OomScore));
}

#[test]
fn paths_are_absolute_and_plain() {
    for path in ["usr", "", "//", "//usr", "/usr/", "/usr/../etc", "/./usr", "/usr//lib"] {
        let path = || vec![path.into()];
        assert_eq!(refused(|d| d.root.read_only = path()), ("root.read_only", Rule::Path));
        assert_eq!(refused(|d| d.landlock.write = path()), ("landlock.write", Rule::Path));
    }
    assert_eq!(refused(|d| d.root.read_only = vec!["/".into()]), ("root.read_only", Rule::Path));
    let mut whole = full();
    whole.landlock.read = vec!["/".into()];
    whole.check().unwrap();
    let long = format!("/{}", "x".repeat(4096));
    assert_eq!(refused(|d| d.root.system.push(long.into())), ("root.system", Rule::Path));
    assert_eq!(refused(|d| d.root.system.push("/a\0b".into())), ("root.system", Rule::NoZeroByte));
    for path in ["/dev", "/dev/shm", "/proc/sys", "/tmp"] {
        assert_eq!(
            refused(|d| d.root.writable = vec![path.into()]),
            ("root.writable", Rule::NotPrivate),
            "{path}"
        );
    }
    assert_eq!(refused(|d| d.root.writable.push("/usr".into())), ("root.writable", Rule::Once));
}

#[test]
fn device_nodes_are_plain_and_below_dev() {
    let device = |path: &str, major, minor, mode| Device { path: path.into(), major, minor, mode };
    let with = |device: Device| refused(move |d| d.root.devices.push(device));
    assert_eq!(with(device("/dev", 1, 3, 0o600)), ("root.devices", Rule::BelowDev));
    assert_eq!(with(device("/devices/kvm", 1, 3, 0o600)), ("root.devices", Rule::BelowDev));
    assert_eq!(with(device("/dev/../etc/kvm", 1, 3, 0o600)), ("root.devices", Rule::Path));
    assert_eq!(with(device("/dev/kvm", 4096, 3, 0o600)), ("root.devices", Rule::DeviceNumber));
    assert_eq!(with(device("/dev/kvm", 10, 1 << 20, 0o600)), ("root.devices", Rule::DeviceNumber));
    assert_eq!(with(device("/dev/kvm", 10, 232, 0o4600)), ("root.devices", Rule::Mode));
    assert_eq!(with(device("/dev/kvm", 10, 232, 0o700)), ("root.devices", Rule::Mode));
    assert_eq!(with(device("/dev/vfio/vfio", 10, 232, 0o600)), ("root.devices", Rule::Once));
}

#[test]
fn a_root_needs_the_mount_namespace() {
    assert_eq!(refused(|d| d.namespaces.mount = false), ("root", Rule::NeedsMountNamespace));
    let mut document = full();
    document.namespaces.mount = false;
    document.root = Root::default();
    document.check().unwrap();
    assert_eq!(refused(|d| d.root.tmp = Some(0)), ("root.tmp", Rule::TmpSize));
    assert_eq!(refused(|d| d.root.tmp = Some(u64::MAX)), ("root.tmp", Rule::TmpSize));
}

#[test]
fn an_error_names_field_value_and_rule_and_stays_short() {
    let mut document = full();
    document.env.push("x".repeat(1000));
    let error = document.check().unwrap_err().to_string();
    assert!(error.starts_with("the field `env` of the document is xxx"), "{error}");
    assert!(error.ends_with("…, but it must have the form NAME=value"), "{error}");
    assert!(error.len() < 250, "{error}");
    let error = Document { uid: 0, ..full() }.check().unwrap_err().to_string();
    assert_eq!(error, "the field `uid` of the document is 0, but it must be from 1 to 4294967294");
}

#[test]
fn a_skeleton_has_paths_of_the_system_only() {
    let skeleton = Skeleton { system: vec!["/usr".into(), "/lib".into()] };
    assert_eq!(Skeleton::parse(&skeleton.to_bytes().unwrap()).unwrap(), skeleton);
    for path in ["/dev", "usr", "/usr/.."] {
        assert!(Skeleton { system: vec![path.into()] }.check().is_err(), "{path}");
    }
    assert!(Skeleton { system: vec!["/usr".into(), "/usr".into()] }.check().is_err());
}

proptest! {
    /// Any bytes are refused or are a document that is written and read unchanged.
    #[test]
    fn any_bytes_are_refused_or_understood(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(document) = Document::parse(&bytes) {
            prop_assert_eq!(Document::parse(&document.to_bytes().unwrap()).unwrap(), document);
        }
    }

    /// The same for a document in which one byte is replaced.
    #[test]
    fn a_damaged_document_is_refused_or_understood(at in 0_usize..1000, byte: u8) {
        let mut bytes = full().to_bytes().unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(document) = Document::parse(&bytes) {
            prop_assert_eq!(Document::parse(&document.to_bytes().unwrap()).unwrap(), document);
        }
    }
}
