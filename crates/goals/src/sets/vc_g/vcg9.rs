//! VC-G9: hostile bytes for what VMCI sockets read: packet headers and rings, the state of
//! connections, the host's handshake. `fuzz/RECORD.md` counts all executions so far.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Words in the names of targets that belong to VMCI sockets.
const TOPICS: [&str; 5] = ["socket", "vmci", "handshake", "connection", "hub"];

pub(super) const ROW: Row = Row {
    id: "VC-G9",
    what: "fuzzing of what VMCI sockets read",
    on: "fuzz targets",
    goals: &[Goal::new("VC-G9", &[Bound::Exactly(0.0, "crashes"), Bound::Above(0.0, "executions")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick("300", "20");
    let folder = lab.setup().checkout.join("fuzz/fuzz_targets");
    let files = lab.machine().list(&folder)?;
    let names = files.iter().filter_map(|path| path.file_stem()?.to_str());
    let targets: Vec<&str> = names.filter(|name| TOPICS.iter().any(|topic| name.contains(topic))).collect();
    let is_granted = lab.machine().takes_for_granted();
    require(!targets.is_empty() || is_granted, format!("{} has no such target", folder.display()))?;
    let script = lab.setup().checkout.join("tools/fuzz.sh");
    let command = lab.in_checkout(script).args([seconds]).args(targets.as_slice()).record("fuzz");
    // A crash ends the script with status 1, and is counted in its last line.
    let ended = lab.machine().run(&command)?;
    let crashes = ended.stdout.number_between(" s, ", " crashes")?;
    let executions = ended.stdout.number_between("FUZZ all ", " executions")?;
    if crashes == 0.0 {
        ended.success()?;
    }
    let detail = format!("{} targets: {}", targets.len(), targets.join(" "));
    results.record("VC-G9", [crashes, executions], detail);
    Ok(())
}
