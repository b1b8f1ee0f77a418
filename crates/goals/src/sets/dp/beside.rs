//! taut beside OVS-DPDK and DPDK's vhost library, which is the floor of what copies twice.

use crate::figure::{Value, shown};
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, Rig, Switch, limit};
use crate::reason::Measured;
use crate::rival::Rival;
use crate::rounds::{Ratio, Rounds};

pub(super) const OVS: &[Rival] = &[Rival::OvsDpdk];
pub(super) const FLOOR: &[Rival] = &[Rival::DpdkTestpmd];
pub(super) const BOTH: &[Rival] = &[Rival::OvsDpdk, Rival::DpdkTestpmd];
pub(super) const BOTH_BY_LGEN: &[Rival] = &[Rival::OvsDpdk, Rival::DpdkTestpmd, Rival::Generator("lgen")];
pub(super) const BOTH_BY_VGEN: &[Rival] = &[Rival::OvsDpdk, Rival::DpdkTestpmd, Rival::Generator("vgen")];

/// Machine of all rows of switches.
pub(super) const ON: &str = "the switch on CPU 0, the generator on CPU 1, all with the same priority";

/// The ratio by which the number of rounds is decided.
pub(super) const TAUT_TO_OVS: Ratio = Ratio { over: "taut", under: "ovs", figure: "mpps" };

/// taut, OVS and the floor in alternation.
pub(super) struct Beside {
    pub(super) rate: Value,
    pub(super) over_ovs: Value,
    pub(super) over_floor: Value,
    pub(super) detail: String,
}

/// Measures the throughput of taut, OVS and the floor.
pub(super) fn measure(
    lab: &mut Lab,
    rig: &mut Rig,
    generator: Generator,
    load: &'static str,
) -> Measured<Beside> {
    let cells = [
        Cell::new("taut", Switch::taut(), generator, load),
        Cell::new("ovs", Switch::OVS, generator, load),
        Cell::new("floor", Switch::Vhost, generator, load),
    ];
    let rounds = rig.compare(lab, &cells, Some(TAUT_TO_OVS))?;
    Ok(Beside {
        rate: rounds.median("taut", "mpps")?,
        over_ovs: rounds.ratio("taut", "ovs", "mpps")?,
        over_floor: rounds.ratio("taut", "floor", "mpps")?,
        detail: rates(&rounds, &["taut", "ovs", "floor"])?,
    })
}

/// Writes the rates of cells with their spread, what limited them, and the machine's state.
pub(super) fn rates(rounds: &Rounds, cells: &[&str]) -> Measured<String> {
    let mut parts = Vec::new();
    for cell in cells {
        parts.push(format!("{cell} {}", spread(&rounds.median(cell, "mpps")?, "Mpps")));
    }
    parts.extend(cells.iter().map(|cell| limit(rounds, cell)));
    parts.push(state(rounds));
    Ok(parts.join("; "))
}

/// Writes the state of the machine in the rounds that count.
pub(super) fn state(rounds: &Rounds) -> String {
    format!("cores {}, {} rounds dropped", rounds.state(), rounds.dropped())
}

/// Writes a median with its spread.
pub(super) fn spread(value: &Value, unit: &str) -> String {
    let figure = format!("{} {unit}", shown(value.value));
    let spread = value.spread.map(|spread| format!(" [{}–{}]", shown(spread.min), shown(spread.max)));
    figure + &spread.unwrap_or_default()
}
