//! Both holders change files in any order and are killed anywhere: the claim in force is in the
//! file, and after the last claim the file has its former content.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::kernel::adjust::Adjustment;

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
        // A file system in memory makes flushing to disk fast.
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

    /// Returns the daemon's changes: a plain value, and a value computed from the present one.
    fn adjustments(&self) -> Adjustments<'static> {
        let plain: Adjustment<'static> = Box::new(|_| Some("n/a".to_owned()));
        let made: Adjustment<'static> = Box::new(|base| Some(format!("{}-1", base.trim())));
        [(self.file(LATENCY), plain), (self.file(MASK), made)].into()
    }
}

/// One action. Its number, if any, is the step at which the process is killed.
#[derive(Debug, Clone)]
enum Act {
    /// `taut check host --apply`.
    Apply(Vec<(usize, u8)>),
    /// `taut check host --undo`.
    Undo(Option<usize>),
    /// The daemon settles with a latency-sensitive VM.
    Grant(Option<usize>),
    /// The daemon settles without the VM.
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

/// Settles, possibly killed at a step. Returns whether it completed.
fn settle(host: &Host, holder: Holder, adjustments: &Adjustments<'_>, killed: Option<usize>) -> bool {
    let mut left = killed.unwrap_or(usize::MAX);
    let mut step = || {
        left = left.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
        Ok(())
    };
    let settled = host.ledger().settle_stepwise(holder, adjustments, &mut BTreeMap::new(), &mut step);
    settled.is_ok()
}

/// The expected claims; `None` after a kill, until an action completes.
#[derive(Default)]
struct Model {
    check: Option<BTreeMap<usize, String>>,
    granted: Option<bool>,
}

impl Model {
    /// Checks that every claim that is certain is in force.
    fn holds(&self, host: &Host) -> Result<(), TestCaseError> {
        if self.granted == Some(true) {
            prop_assert_eq!(host.read(LATENCY), "n/a");
            let mask = host.read(MASK);
            prop_assert!(mask.ends_with("-1"), "{}", mask);
        }
        if let (Some(check), Some(false)) = (&self.check, self.granted) {
            for (&file, value) in check {
                // A value that the file has already is not written.
                let content = host.read(FILES[file].0);
                prop_assert_eq!(content.trim_end(), value);
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn claims_hold_in_any_order_and_the_last_one_restores_the_files(acts in proptest::collection::vec(act(), 1..12)) {
        let host = Host::new();
        let nothing = Adjustments::new();
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
                    // Settling the same again never lifts a claim in between.
                    let done = settle(&host, Holder::Daemon, &host.adjustments(), killed);
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
fn undo_does_not_lift_a_vms_claim() {
    for vm_first in [false, true] {
        let host = Host::new();
        let apply =
            |value: &str| host.ledger().add(Holder::Check, &[(LATENCY.into(), value.into())]).unwrap();
        let grant = |adjustments: &Adjustments<'_>| {
            host.ledger().settle(Holder::Daemon, adjustments, &mut BTreeMap::new()).unwrap()
        };
        if vm_first {
            grant(&host.adjustments());
            assert_eq!(apply("20").held, [(LATENCY.to_owned(), Holder::Daemon)].into());
        } else {
            assert_eq!(apply("20").in_force, [LATENCY.to_owned()].into());
            grant(&host.adjustments());
        }
        assert_eq!(host.read(LATENCY), "n/a");
        host.ledger().settle(Holder::Check, &Adjustments::new(), &mut BTreeMap::new()).unwrap();
        assert_eq!(host.read(LATENCY), "n/a", "the VM's claim stays");
        apply("7");
        grant(&Adjustments::new());
        assert_eq!(host.read(LATENCY), "7", "the remaining claim is in force");
        host.ledger().settle(Holder::Check, &Adjustments::new(), &mut BTreeMap::new()).unwrap();
        assert!(host.is_as_before());
    }
}

#[test]
fn a_value_computed_from_another_claim_follows_it() {
    let host = Host::new();
    let grant = || host.ledger().settle(Holder::Daemon, &host.adjustments(), &mut BTreeMap::new()).unwrap();
    grant();
    assert_eq!(host.read(MASK), "ff-1");
    host.ledger().add(Holder::Check, &[(MASK.into(), "f0".into())]).unwrap();
    grant();
    assert_eq!(host.read(MASK), "f0-1");
    fs::write(host.file(MASK), "another program").unwrap();
    grant();
    assert_eq!(host.read(MASK), "f0-1", "claims are checked each time");
}

#[test]
fn a_file_that_cannot_be_changed_is_refused_once_and_not_claimed() {
    let host = Host::new();
    fs::remove_file(host.file(MASK)).unwrap();
    // Stands in for the file of an interrupt that the hardware binds: readable, but not writable.
    std::os::unix::fs::symlink("/proc/version", host.file(MASK)).unwrap();
    let mut refused = BTreeMap::new();
    let settled = host.ledger().settle(Holder::Daemon, &host.adjustments(), &mut refused).unwrap();
    assert_eq!(settled.in_force, [LATENCY.to_owned()].into());
    assert_eq!(host.ledger().claimed(Holder::Daemon).unwrap(), [LATENCY]);
    assert!(refused[&host.file(MASK)].contains("cpumask cannot be changed: "), "{refused:?}");
    let settled = host.ledger().settle(Holder::Daemon, &host.adjustments(), &mut refused).unwrap();
    assert_eq!(settled.failed, BTreeMap::new(), "not tried again");
}
