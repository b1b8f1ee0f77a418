//! Many bytes through rings of both guests, in both directions at once, each of them compared.

use super::stage::{ADDRESS, TRANSFERS};
use crate::figure::shown;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::Results;
use crate::sets::qp::shells::{Connections, PRELOADED, shell, shell_within};

/// Connections at once.
const CONNECTIONS: u64 = 4;

pub(super) fn measure(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // Both directions count.
    let all: u64 = lab.pick(100 << 30, 1 << 30);
    let bytes = all.div_ceil(2 * CONNECTIONS);
    let lines = format!(
        "rm -f go out\n{PRELOADED} tcp_transfer connect {ADDRESS}:{TRANSFERS} --bytes {bytes} --connections \
         {CONNECTIONS} --hold /tmp/go >out 2>said &\nuntil grep -q holding out; do sleep 0.5; done"
    );
    let before = [ring_bytes(lab, "client")?, ring_bytes(lab, "server")?];
    shell_within(lab, "client", 7200, &lines)?;
    let list = Connections::list(lab)?;
    let after = [ring_bytes(lab, "client")?, ring_bytes(lab, "server")?];
    let said = shell(lab, "client", ">go; until grep -q transfers: out; do sleep 0.2; done\ncat out")?;
    let exact = said.number_between("transfers: ", " exact,")?;
    let rate = said.number_between(" bytes, ", " Mbit/s")?;
    let rings = list.ends("client", TRANSFERS, "ring")? + list.ends("server", TRANSFERS, "ring")?;
    // A byte counts at both ends.
    let moved = (after[0] - before[0]).min(after[1] - before[1]) / all as f64;
    let part = if rings < 2.0 * CONNECTIONS as f64 { 0.0 } else { moved };
    let detail = format!(
        "{} GiB in both directions of {CONNECTIONS} connections, every byte compared; {} ends by rings",
        shown(all as f64 / 1_073_741_824.0),
        shown(rings)
    );
    results.record("QP7-bytes", [CONNECTIONS as f64 - exact, part, rate], detail);
    Ok(())
}

/// Bytes that a VM has sent and received by rings.
fn ring_bytes(lab: &mut Lab, vm: &str) -> Measured<f64> {
    let shown = lab.taut_json(format!("vmci show {vm}"))?;
    let counters = shown.at("status.vmci.counters")?;
    Ok(counters.number("ring_rx_bytes")? + counters.number("ring_tx_bytes")?)
}
