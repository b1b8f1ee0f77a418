//! Old commits that this build is compared with.

use std::path::{Path, PathBuf};

use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::Measured;

const BEFORE: &str = "e2e8590";

/// What the program for inside a VM is built for.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Builds the programs of the commit before the change of structure, and returns their folder.
pub(super) fn programs(lab: &mut Lab) -> Measured<PathBuf> {
    programs_of(lab, BEFORE, "before")
}

/// Builds the programs of a commit in a folder of cargo's target folder, and returns their folder.
/// Cargo keeps what it built for the next run; the sources have the times of their commits, so that
/// it finds them unchanged.
pub(in crate::sets) fn programs_of(lab: &mut Lab, commit: &str, folder: &str) -> Measured<PathBuf> {
    let sources = lab.target().join(folder).join("src");
    lab.machine().remove_all(&sources)?;
    lab.machine().make_folder(&sources)?;
    extract(lab, commit, &sources)?;
    let target = lab.target().join(folder).join("target");
    let words = "build -q --release --workspace --bins --exclude taut-tests --exclude taut-guest";
    let cargo = lab.in_checkout("cargo").args(words).args("--exclude taut-fuzz-targets");
    lab.run(&cargo.folder(&sources).env("CARGO_TARGET_DIR", &target))?;
    // As the Makefile builds it: static, for inside a VM.
    let words = format!("build -q --release -p taut-guest --target {TRIPLE}");
    let cargo = lab.in_checkout("cargo").args(words).env("RUSTFLAGS", "-C target-feature=+crt-static");
    lab.run(&cargo.folder(&sources).env("CARGO_TARGET_DIR", &target))?;
    let programs = target.join("release");
    lab.machine().copy(&target.join(TRIPLE).join("release/taut-guest"), &programs.join("taut-guest"))?;
    Ok(programs)
}

/// Builds one program of this tree with a feature, and returns a folder with it and the others as
/// they are measured.
pub(in crate::sets) fn programs_with(lab: &mut Lab, package: &str, feature: &str) -> Measured<PathBuf> {
    let target = lab.target().join(feature);
    let words = format!("build -q --release --bins -p {package} --features {feature}");
    let cargo = lab.in_checkout("cargo").args(words);
    lab.run(&cargo.env("CARGO_TARGET_DIR", &target))?;
    let programs = target.join("programs");
    lab.machine().remove_all(&programs)?;
    lab.machine().make_folder(&programs)?;
    let own = Command::new("find").arg(lab.setup().programs.clone());
    let own = own.args("-maxdepth 1 -type f -perm -u+x -exec cp --target-directory");
    lab.run(&own.arg(&programs).args("{} +"))?;
    lab.machine().copy(&target.join("release").join(package), &programs.join(package))?;
    Ok(programs)
}

/// Extracts the sources of the commit before the change of structure, and returns their folder.
pub(super) fn tree(lab: &mut Lab) -> Measured<PathBuf> {
    let folder = lab.folder().join("before");
    lab.machine().make_folder(&folder)?;
    extract(lab, BEFORE, &folder)?;
    Ok(folder)
}

fn extract(lab: &mut Lab, commit: &str, folder: &Path) -> Measured<()> {
    let archive = lab.folder().join("before.tar");
    let command = lab.in_checkout("git").args(["archive", "-o"]).arg(&archive).arg(commit);
    lab.run(&command)?;
    lab.run(&Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder)).map(drop)
}
