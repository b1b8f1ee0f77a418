//! Interrupts: those that can be moved leave exclusive pCPUs, and new ones do not come there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::ledger::Wishes;
use crate::{list, mask};

/// Adds a wish for each interrupt. One that was bound to exclusive pCPUs only goes to the `host`'s.
pub(crate) fn wishes<'a>(
    root: &Path,
    exclusive: &'a BTreeSet<u32>,
    host: &'a BTreeSet<u32>,
    wishes: &mut Wishes<'a>,
) {
    let folder = root.join("proc/irq");
    let new = move |before: &str| mask::without(before, exclusive);
    wishes.insert(folder.join("default_smp_affinity"), Box::new(new));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let wish = move |before: &str| {
            let after = list::without(before, exclusive)?;
            Some(list::format(if after.is_empty() { host } else { &after }))
        };
        wishes.insert(entry.path().join("smp_affinity_list"), Box::new(wish));
    }
}

/// Adds a wish for each interrupt that has a place of its own.
pub(crate) fn placed(root: &Path, interrupts: &BTreeMap<u32, BTreeSet<u32>>, wishes: &mut Wishes<'_>) {
    for (number, cpus) in interrupts {
        let place = list::format(cpus);
        let path = root.join(format!("proc/irq/{number}/smp_affinity_list"));
        wishes.insert(path, Box::new(move |_| Some(place.clone())));
    }
}

/// An interrupt that stays on exclusive pCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedInterrupt {
    /// Its number.
    pub number: u32,
    /// Drivers that wait for it.
    pub name: String,
    /// Exclusive pCPUs that it may come to.
    pub cpus: BTreeSet<u32>,
    /// Why it was not moved.
    pub why: String,
}

/// Those of `refused` that may come to exclusive pCPUs.
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
        // Each driver that waits for it has a folder.
        let mut drivers: Vec<_> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        drivers.sort();
        // The reason without the file, which the number names already.
        let why = why.rsplit_once(" cannot be changed: ").map_or(&**why, |(_, why)| why).to_owned();
        // One that nobody waits for does not come.
        let matters = !cpus.is_empty() && !drivers.is_empty();
        matters.then(|| FixedInterrupt { number, name: drivers.join(", "), cpus, why })
    };
    refused.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_moved_is_named_if_it_matters() {
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
        let told: Vec<_> = found.iter().map(|it| (it.number, &*it.name, it.cpus.len(), &*it.why)).collect();
        assert_eq!(told, [(24, "nvme0q3", 1, "Input/output error (os error 5)")]);
    }
}
