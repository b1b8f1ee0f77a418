//! Clean-up after labs whose owner was killed (SIGKILL, or with its terminal). The next run does
//! it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Setup, file_system, scope};
use crate::machine::{Command, Machine, Signal};
use crate::reason::Measured;

const PREFIX: &str = "taut-goal.";

/// Makes the folder of a lab. Its name has this process's number and start time, because numbers
/// are used again.
pub(super) fn folder(machine: &mut dyn Machine) -> Measured<PathBuf> {
    let own = std::process::id();
    let start = began(machine, own).unwrap_or_default();
    for number in 0.. {
        let path = Path::new("/tmp").join(format!("{PREFIX}{own}.{start}.{number}"));
        if !machine.exists(&path) || machine.is_stand_in() {
            machine.make_folder(&path)?;
            return Ok(path);
        }
    }
    unreachable!("a number is free")
}

/// Returns the start time of a process in clock ticks; `None` for one that is gone or a zombie.
fn began(machine: &mut dyn Machine, pid: u32) -> Option<String> {
    let stat = machine.read(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    let fields: Vec<&str> = stat.as_str().rsplit_once(')')?.1.split_whitespace().collect();
    (*fields.first()? != "Z").then(|| fields.get(19).map(|&field| field.to_owned()))?
}

/// Writes the commands that a lab owes the machine to its folder.
pub(super) fn note_owed(machine: &mut dyn Machine, folder: &Path, owed: &[Command]) -> Measured<()> {
    let words = |command: &Command| {
        let words: Vec<&String> = [&command.program].into_iter().chain(&command.arguments).collect();
        serde_json::to_string(&words)
    };
    let lines: Vec<String> = owed.iter().map(words).collect::<Result<_, _>>()?;
    machine.write(&folder.join("owed"), &(lines.join("\n") + "\n"))
}

/// Removes every lab whose owner is gone, with all that it left on the machine.
pub fn clear_away_the_dead(machine: &mut dyn Machine, setup: &Setup) -> Measured<()> {
    for folder in machine.list(Path::new("/tmp"))? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let mut parts = rest.splitn(3, '.');
        let (Some(owner), Some(start)) = (parts.next(), parts.next()) else { continue };
        let Ok(pid) = owner.parse() else { continue };
        if began(machine, pid).as_deref() != Some(start) {
            clear_away(machine, setup, &folder, owner)?;
        }
    }
    Ok(())
}

fn clear_away(machine: &mut dyn Machine, setup: &Setup, lab: &Path, owner: &str) -> Measured<()> {
    eprintln!("clearing away {}, whose owner (process {owner}) is gone", lab.display());
    let scope = scope::of(owner);
    let owed = owed_commands(machine, lab);
    // A daemon on a frozen file system cannot end.
    for thaw in owed.iter().filter(|command| file_system::is_thaw(&command.program)) {
        let _ = machine.run(thaw);
    }
    // Daemons are in the lab itself or in folders of it.
    let inside = machine.list(lab).unwrap_or_default();
    for folder in inside.into_iter().chain([lab.to_owned()]) {
        if machine.exists(&folder.join("state")) {
            end_daemon(machine, setup, &folder, &scope);
        }
    }
    end_processes(machine, lab)?;
    scope::empty(machine, &scope)?;
    for command in owed.iter().rev() {
        // The owner may have undone it itself.
        let _ = machine.run(command);
    }
    machine.remove_all(lab)
}

/// Returns the commands that a lab owes the machine, in the order of its changes.
fn owed_commands(machine: &mut dyn Machine, lab: &Path) -> Vec<Command> {
    let Ok(owed) = machine.read(&lab.join("owed")) else { return Vec::new() };
    let command = |line: &str| {
        let words: Vec<String> = serde_json::from_str(line).ok()?;
        let (program, arguments) = words.split_first()?;
        Some(Command::new(program).args(arguments.to_vec()))
    };
    owed.lines().into_iter().filter_map(command).collect()
}

/// Has a lab's daemon end everything and restore the host. If that daemon is dead, starts another
/// one for it.
fn end_daemon(machine: &mut dyn Machine, setup: &Setup, folder: &Path, scope: &Path) {
    let taut = |words: &str| {
        Command::new(setup.programs.join("taut"))
            .args(words)
            .env("TAUT_SOCKET", folder.join("run/tautd.sock"))
    };
    let answers = |machine: &mut dyn Machine| machine.run(&taut("daemon show")).is_ok_and(|e| e.is_success());
    if machine.exists(&folder.join("state/host-changes.json")) && !answers(machine) {
        let mut command = Command::new(setup.programs.join("tautd")).session();
        command =
            command.arg("--state-dir").arg(folder.join("state")).arg("--run-dir").arg(folder.join("run"));
        if machine.exists(scope) {
            command = command.arg("--cpuset").arg(scope);
        }
        if machine.start(&command).is_ok() {
            for _ in 0..200 {
                if answers(machine) || machine.sleep(Duration::from_millis(50)).is_err() {
                    break;
                }
            }
        }
    }
    let _ = machine.run(&taut("shutdown --everything"));
}

/// Kills processes with the lab's path in their environment or command line.
pub(super) fn end_processes(machine: &mut dyn Machine, lab: &Path) -> Measured<()> {
    let mark = format!("{}/", lab.display());
    let own = std::process::id();
    let mut killed = Vec::new();
    for process in machine.list(Path::new("/proc"))? {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else {
            continue;
        };
        let mut has = |file: &str| machine.read(&process.join(file)).is_ok_and(|text| text.contains(&mark));
        if pid != own && (has("environ") || has("cmdline")) {
            let _ = machine.signal(pid, Signal::Kill);
            killed.push(process);
        }
    }
    // Huge pages and the like are free only a moment after the kill.
    for process in killed {
        for _ in 0..100 {
            if !machine.exists(&process.join("exe")) {
                break;
            }
            machine.sleep(Duration::from_millis(50))?;
        }
    }
    Ok(())
}
