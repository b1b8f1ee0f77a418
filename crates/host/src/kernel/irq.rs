//! Interrupt affinity: moves interrupts off exclusive pCPUs, and keeps new ones away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use taut_api::enforcement::FixedInterrupt;

use super::adjust::Adjustments;
use super::{list, mask};

/// Takes the exclusive pCPUs out of every interrupt's affinity. An interrupt that had no others
/// goes to the pCPUs of the `host`.
pub(crate) fn move_off<'a>(
    root: &Path,
    exclusive: &'a BTreeSet<u32>,
    host: &'a BTreeSet<u32>,
    adjustments: &mut Adjustments<'a>,
) {
    let folder = root.join("proc/irq");
    let default = move |before: &str| mask::without(before, exclusive);
    adjustments.insert(folder.join("default_smp_affinity"), Box::new(default));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let adjust = move |before: &str| {
            let after = list::without(before, exclusive)?;
            Some(list::format(if after.is_empty() { host } else { &after }))
        };
        adjustments.insert(entry.path().join("smp_affinity_list"), Box::new(adjust));
    }
}

/// Sets the affinity of each of these interrupts, in place of the general rule.
pub(crate) fn place(
    root: &Path,
    interrupts: &BTreeMap<u32, BTreeSet<u32>>,
    adjustments: &mut Adjustments<'_>,
) {
    for (number, cpus) in interrupts {
        let place = list::format(cpus);
        let path = root.join(format!("proc/irq/{number}/smp_affinity_list"));
        adjustments.insert(path, Box::new(move |_| Some(place.clone())));
    }
}

/// Returns the interrupts among the `refused` files that exclusive pCPUs may still receive.
pub(crate) fn fixed(
    folder: &Path,
    refused: &BTreeMap<PathBuf, String>,
    exclusive: &BTreeSet<u32>,
) -> Vec<FixedInterrupt> {
    let of = |(path, why): (&PathBuf, &String)| {
        let dir = path.parent().filter(|dir| dir.parent() == Some(folder))?;
        let number = dir.file_name()?.to_str()?.parse().ok()?;
        let read =
            |file: &str| fs::read_to_string(dir.join(file)).ok().filter(|text| !text.trim().is_empty());
        let now = read("effective_affinity_list").or_else(|| read("smp_affinity_list"))?;
        let cpus: BTreeSet<u32> =
            list::parse(&now).ok()?.into_iter().filter(|cpu| exclusive.contains(cpu)).collect();
        // Each driver that handles the interrupt has a folder.
        let mut drivers: Vec<_> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        drivers.sort();
        // Strips the file's path: the interrupt's number already names it.
        let why = why.rsplit_once(" cannot be changed: ").map_or(&**why, |(_, why)| why).to_owned();
        // An interrupt without a driver is never raised.
        let matters = !cpus.is_empty() && !drivers.is_empty();
        matters.then(|| FixedInterrupt { number, drivers: drivers.join(", "), cpus, why })
    };
    refused.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_cannot_be_moved_is_reported_only_if_it_reaches_exclusive_pcpus() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("24/smp_affinity_list", "0-3\n");
        write("24/effective_affinity_list", "2\n");
        fs::create_dir(folder.path().join("24/nvme0q3")).unwrap();
        write("25/smp_affinity_list", "2-3\n");
        write("26/effective_affinity_list", "1\n");
        let refused = |path: &str| {
            let path = folder.path().join(path);
            let why = format!("{} cannot be changed: Input/output error (os error 5)", path.display());
            (path, why)
        };
        let all =
            ["24/smp_affinity_list", "25/smp_affinity_list", "26/smp_affinity_list", "default_smp_affinity"];
        let refused = all.map(refused).into();
        let found = fixed(folder.path(), &refused, &[2, 3].into());
        let told: Vec<_> =
            found.iter().map(|it| (it.number, &*it.drivers, it.cpus.len(), &*it.why)).collect();
        assert_eq!(told, [(24, "nvme0q3", 1, "Input/output error (os error 5)")]);
    }
}
