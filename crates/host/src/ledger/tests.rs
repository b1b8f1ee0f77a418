//! Both holders, in any order and killed anywhere: who wants a file has it, and the last one gives back what it had.

use std::fs;

use proptest::prelude::*;

use super::*;

const LATENCY: &str = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
const MASK: &str = "sys/devices/virtual/workqueue/cpumask";
const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const FILES: [(&str, &str); 4] = [
    ("proc/sys/kernel/random/boot_id", "5f1c\n"),
    (LATENCY, "100\n"),
    (MASK, " ff\n"),
    (THP, "always [madvise] never\n"),
];

struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        // Where there is a file system in memory, waiting for the disk takes no time.
        let host = Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap());
        for (path, content) in FILES {
            fs::create_dir_all(host.file(path).parent().unwrap()).unwrap();
            fs::write(host.file(path), content).unwrap();
        }
        host
    }

    fn file(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap()
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.0.path(), &self.file("var/lib/taut"))
    }

    fn is_as_before(&self) -> bool {
        FILES.iter().all(|(path, content)| self.read(path) == *content)
    }

    /// What the daemon wants: one plain value, and one made of what is there.
    fn wishes(&self) -> Wishes<'static> {
        let plain: Wish<'static> = Box::new(|_| Some("n/a".to_owned()));
        let made: Wish<'static> = Box::new(|base| Some(format!("{}-1", base.trim())));
        [(self.file(LATENCY), plain), (self.file(MASK), made)].into()
    }
}

/// One thing that somebody does. The number, where it is there, is the step at which it is killed.
#[derive(Debug, Clone)]
enum Act {
    /// `taut check host --apply`.
    Apply(Vec<(usize, u8)>),
    /// `taut check host --undo`.
    Undo(Option<usize>),
    /// A latency-sensitive VM, by a daemon that looks again and again.
    Grant(Option<usize>),
    /// The VM is gone.
    Release(Option<usize>),
}

fn act() -> impl Strategy<Value = Act> {
    let killed = || proptest::option::of(0..6_usize);
    prop_oneof![
        proptest::collection::vec((1..FILES.len(), any::<u8>()), 1..4).prop_map(Act::Apply),
        killed().prop_map(Act::Undo),
        killed().prop_map(Act::Grant),
        killed().prop_map(Act::Release),
    ]
}

/// Was it done to its end?
fn settle(host: &Host, holder: Holder, wishes: &Wishes<'_>, killed: Option<usize>) -> bool {
    let mut left = killed.unwrap_or(usize::MAX);
    let mut step = || {
        left = left.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
        Ok(())
    };
    let settled = host.ledger().settle_stepwise(holder, wishes, &mut BTreeMap::new(), &mut step);
    settled.is_ok()
}

/// What is known of who wants what: nothing after a kill, until it is done to its end.
#[derive(Default)]
struct Model {
    check: Option<BTreeMap<usize, String>>,
    granted: Option<bool>,
}

impl Model {
    /// Is everything in force that is certainly held?
    fn holds(&self, host: &Host) -> Result<(), TestCaseError> {
        if self.granted == Some(true) {
            prop_assert_eq!(host.read(LATENCY), "n/a");
            let mask = host.read(MASK);
            prop_assert!(mask.ends_with("-1"), "{}", mask);
        }
        if let (Some(check), Some(false)) = (&self.check, self.granted) {
            for (&file, value) in check {
                // What is so already is not written.
                let content = host.read(FILES[file].0);
                prop_assert_eq!(content.trim_end(), value);
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn in_any_order_who_holds_has_its_way_and_the_last_gives_back(acts in proptest::collection::vec(act(), 1..12)) {
        let host = Host::new();
        let nothing = Wishes::new();
        let mut model = Model { check: Some(BTreeMap::new()), granted: Some(false) };
        for act in acts {
            match act {
                Act::Apply(values) => {
                    let values: Vec<_> = values.into_iter().map(|(file, value)| (file, value.to_string())).collect();
                    let wanted: Vec<_> =
                        values.iter().map(|(file, value)| (FILES[*file].0.to_owned(), value.clone())).collect();
                    host.ledger().add(Holder::Check, &wanted).unwrap();
                    if let Some(check) = &mut model.check {
                        check.extend(values);
                    }
                }
                Act::Undo(killed) => {
                    let done = settle(&host, Holder::Check, &nothing, killed);
                    model.check = done.then(BTreeMap::new);
                }
                Act::Grant(killed) => {
                    // The bound of a VM that had it is never lifted by being asked for again.
                    let done = settle(&host, Holder::Daemon, &host.wishes(), killed);
                    model.granted = if done { Some(true) } else { model.granted.filter(|granted| *granted) };
                }
                Act::Release(killed) => {
                    let done = settle(&host, Holder::Daemon, &nothing, killed);
                    model.granted = done.then_some(false);
                }
            }
            model.holds(&host)?;
        }
        prop_assert!(settle(&host, Holder::Check, &nothing, None));
        prop_assert!(settle(&host, Holder::Daemon, &nothing, None));
        prop_assert!(host.is_as_before());
        prop_assert!(!host.file("var/lib/taut/host-changes.json").exists());
    }
}

#[test]
fn undoing_does_not_lift_what_a_vm_holds() {
    for vm_first in [false, true] {
        let host = Host::new();
        let apply =
            |value: &str| host.ledger().add(Holder::Check, &[(LATENCY.into(), value.into())]).unwrap();
        let grant =
            |wishes: &Wishes<'_>| host.ledger().settle(Holder::Daemon, wishes, &mut BTreeMap::new()).unwrap();
        if vm_first {
            grant(&host.wishes());
            assert_eq!(apply("20").held, [(LATENCY.to_owned(), Holder::Daemon)].into());
        } else {
            assert_eq!(apply("20").in_force, [LATENCY.to_owned()].into());
            grant(&host.wishes());
        }
        assert_eq!(host.read(LATENCY), "n/a");
        host.ledger().settle(Holder::Check, &Wishes::new(), &mut BTreeMap::new()).unwrap();
        assert_eq!(host.read(LATENCY), "n/a", "the VM still holds it");
        apply("7");
        grant(&Wishes::new());
        assert_eq!(host.read(LATENCY), "7", "what is left is in force");
        host.ledger().settle(Holder::Check, &Wishes::new(), &mut BTreeMap::new()).unwrap();
        assert!(host.is_as_before());
    }
}

#[test]
fn what_is_made_of_another_claim_follows_it() {
    let host = Host::new();
    let grant = || host.ledger().settle(Holder::Daemon, &host.wishes(), &mut BTreeMap::new()).unwrap();
    grant();
    assert_eq!(host.read(MASK), "ff-1");
    host.ledger().add(Holder::Check, &[(MASK.into(), "f0".into())]).unwrap();
    grant();
    assert_eq!(host.read(MASK), "f0-1");
    fs::write(host.file(MASK), "somebody else").unwrap();
    grant();
    assert_eq!(host.read(MASK), "f0-1", "what is held is looked at again");
}

#[test]
fn what_cannot_be_changed_is_refused_once_and_not_claimed() {
    let host = Host::new();
    fs::remove_file(host.file(MASK)).unwrap();
    // As an interrupt's file that the hardware binds: it can be read, and not even root can write it.
    std::os::unix::fs::symlink("/proc/version", host.file(MASK)).unwrap();
    let mut refused = BTreeMap::new();
    let settled = host.ledger().settle(Holder::Daemon, &host.wishes(), &mut refused).unwrap();
    assert_eq!(settled.in_force, [LATENCY.to_owned()].into());
    assert_eq!(host.ledger().claimed(Holder::Daemon).unwrap(), [LATENCY]);
    assert!(refused[&host.file(MASK)].contains("cpumask cannot be changed: "), "{refused:?}");
    let settled = host.ledger().settle(Holder::Daemon, &host.wishes(), &mut refused).unwrap();
    assert_eq!(settled.failed, BTreeMap::new(), "it is not tried again");
}
