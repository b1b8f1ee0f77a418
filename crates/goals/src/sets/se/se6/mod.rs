//! SE6: hostile disk images are refused, each for its reason; legitimate chains boot, and the files
//! below them stay as they are.

use std::path::Path;

use crate::figure::Bound;
use crate::lab::{DaemonOptions, Lab, OLDEST};
use crate::machine::{Command, Doc};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

const DISK: &str = include_str!("disk.sh");

/// Disks that boot: the image that the VM names, its format, and the files below it.
const CHAINS: [(&str, &str, &str, &[&str]); 12] = [
    ("a raw disk", "raw", "raw", &[]),
    ("qcow2", "qcow2", "qcow2", &[]),
    ("compressed qcow2", "compressed", "qcow2", &[]),
    ("qcow2 with one base", "top-1", "qcow2", &["chain-0"]),
    ("qcow2 with two bases", "top-2", "qcow2", &["chain-0", "chain-1"]),
    ("qcow2 with three bases", "top-3", "qcow2", &["chain-0", "chain-1", "chain-2"]),
    ("qcow2 with fifteen bases", "chain-15", "qcow2", &FIFTEEN),
    ("qcow2 on a raw disk", "over-raw", "qcow2", &["raw"]),
    ("qcow2 on VMDK", "over-vmdk", "qcow2", &["sparse.vmdk"]),
    ("sparse VMDK", "sparse.vmdk", "vmdk", &[]),
    ("VMDK of streams", "stream.vmdk", "vmdk", &[]),
    ("flat VMDK", "flat.vmdk", "vmdk", &[]),
];

const FIFTEEN: [&str; 15] = [
    "chain-0", "chain-1", "chain-2", "chain-3", "chain-4", "chain-5", "chain-6", "chain-7", "chain-8",
    "chain-9", "chain-10", "chain-11", "chain-12", "chain-13", "chain-14",
];

pub(super) const ROW: Row = Row {
    id: "SE6",
    what: "hostile images are refused for their reason, legitimate chains boot, and bases stay as they are",
    on: "disks of VMs in QEMU, through the daemon",
    goals: &[
        Goal::new(
            "SE6-hostile",
            &[Bound::AtLeast(40.0, "images"), Bound::Exactly(0.0, "not refused for their reason")],
        ),
        Goal::new(
            "SE6-legitimate",
            &[
                Bound::AtLeast(8.0, "chains boot"),
                Bound::Exactly(0.0, "do not"),
                Bound::Exactly(0.0, "base files changed"),
                Bound::Exactly(0.0, "owners or modes changed"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_daemon(DaemonOptions::default())?;
    let outcome = hostile(lab, results);
    results.settle(&["SE6-hostile"], outcome);
    legitimate(lab, results)
}

fn hostile(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let example = lab.example("taut-inspect", "write_corpus")?;
    let folder = lab.folder().join("hostile");
    lab.machine().make_folder(&folder)?;
    let cases = lab.run(&Command::new(example).arg(&folder).record("corpus"))?.stdout.jsons()?;
    let mut wrong = 0;
    for (number, case) in cases.iter().enumerate() {
        let said = refusal(lab, number, case)?;
        let expected = case.text("refusal")?;
        if !said.contains(&expected) {
            wrong += 1;
            lab.note(format!("{}: `{said}`, not `{expected}`", case.text("name")?));
        }
    }
    let detail = "by the daemon, when a VM with the image as its disk is started";
    results.record("SE6-hostile", [cases.len() as f64, f64::from(wrong)], detail);
    Ok(())
}

/// Starts a VM with an image as its disk, and returns the reason for which it does not start.
fn refusal(lab: &mut Lab, number: usize, case: &Doc) -> Measured<String> {
    let name = format!("hostile-{number}");
    create(lab, &name, &case.text("file")?, &case.text("format")?)?;
    let start = lab.taut_command(format!("vm start --wait {name}"));
    let ended = lab.machine().run(&start)?;
    let said = if ended.is_success() {
        "it was started".to_owned()
    } else {
        let reason = lab.vm_show(&name)?.text("status.reason").unwrap_or_default();
        format!("{reason} {}", ended.stderr.trimmed())
    };
    lab.taut(format!("vm delete --force {name}"))?;
    Ok(said)
}

fn create(lab: &mut Lab, name: &str, image: &str, format: &str) -> Measured<()> {
    let file = format!("memory = \"192MiB\"\n[disk]\npath = \"{image}\"\nformat = \"{format}\"\n");
    lab.create_vm(name, &file)
}

fn legitimate(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.boot_of(OLDEST)?;
    let image = lab.setup().images.join(OLDEST);
    let folder = lab.folder().join("disks");
    lab.run(&Command::new("sh").args(["-c", DISK, "disk.sh"]).arg(&image).arg(&folder).record("disks"))?;
    let (mut booted, mut failed, mut bases_changed, mut owners_changed) = (0, Vec::new(), 0, 0);
    for (number, (what, top, format, bases)) in CHAINS.into_iter().enumerate() {
        let name = format!("chain-{number}");
        let top = folder.join(top);
        let bases_before =
            bases.iter().map(|base| state(lab, &folder.join(base))).collect::<Measured<Vec<_>>>()?;
        let owner_before = owner(lab, &top)?;
        create(lab, &name, &top.display().to_string(), format)?;
        let start = lab.taut_command(format!("vm start --wait {name}")).record("boot");
        let ended = lab.machine().run(&start)?;
        if ended.is_success() && lab.vm_show(&name)?.text("status.phase")? == "running" {
            booted += 1;
        } else {
            lab.note(format!("{what}: {}", ended.stderr.last_lines(3)));
            failed.push(what);
        }
        lab.taut(format!("vm delete --force {name}"))?;
        let bases_after =
            bases.iter().map(|base| state(lab, &folder.join(base))).collect::<Measured<Vec<_>>>()?;
        bases_changed +=
            bases_before.iter().zip(&bases_after).filter(|(before, after)| before != after).count();
        owners_changed += usize::from(owner(lab, &top)? != owner_before);
    }
    let detail =
        if failed.is_empty() { String::new() } else { format!("these do not: {}", failed.join(", ")) };
    let counts = [f64::from(booted), failed.len() as f64, bases_changed as f64, owners_changed as f64];
    results.record("SE6-legitimate", counts, detail);
    Ok(())
}

/// Owner, mode, time of the last change, size and content of a file.
fn state(lab: &mut Lab, file: &Path) -> Measured<String> {
    let times = lab.run(&Command::new("stat").args(["-c", "%u:%g %a %s %y"]).arg(file))?.stdout;
    let content = lab.run(&Command::new("sha256sum").arg(file))?.stdout;
    let is_granted = lab.machine().takes_for_granted();
    let is_known = content.trimmed().len() > 64 && times.trimmed().len() > 20;
    require(is_known || is_granted, format!("the state of {} is not known", file.display()))?;
    Ok(format!("{} {}", times.trimmed(), content.trimmed()))
}

/// Owner and mode of a file.
fn owner(lab: &mut Lab, file: &Path) -> Measured<String> {
    let text = lab.run(&Command::new("stat").args(["-c", "%u:%g %a"]).arg(file))?.stdout;
    let is_granted = lab.machine().takes_for_granted();
    require(text.contains(":") || is_granted, format!("the owner of {} is not known", file.display()))?;
    Ok(text.trimmed().to_owned())
}
