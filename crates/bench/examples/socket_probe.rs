//! Tests whether a machine can tell VMs that it may not talk to from VMs that do not exist. Its
//! agent connects to both in turn, many times. Prints the answers as JSON, and whether the times
//! differ.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::{Value, json};
use taut_bench::agent::Client;
use taut_bench::agent::protocol::{Address, Answer, MAX_TARGETS, Probe, Probed, Request, Target};
use taut_bench::measure::latencies::Latencies;

/// Time that the agent may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Probes vsock ports of VMs that a machine may not talk to, and of VMs that do not exist.
#[derive(Debug, Parser)]
struct Arguments {
    /// Unix socket of the machine's agent.
    agent: PathBuf,
    /// Context IDs that no VM has.
    #[arg(long, value_delimiter = ',', required = true)]
    absent: Vec<u32>,
    /// Context IDs of VMs that the machine may not talk to.
    #[arg(long, value_delimiter = ',', required = true)]
    forbidden: Vec<u32>,
    /// Ports to probe on each.
    #[arg(long, value_delimiter = ',', required = true)]
    ports: Vec<u16>,
    /// Number of connections to each port.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
}

fn main() -> Result<()> {
    let Arguments { agent, absent, forbidden, ports, rounds } = Arguments::parse();
    let count = absent.len().min(forbidden.len());
    // Forbidden and absent targets alternate, so that other load affects both alike. The first one
    // changes from port to port.
    let mut targets = Vec::new();
    for (turn, port) in ports.iter().enumerate() {
        for (absent, forbidden) in absent.iter().zip(&forbidden).take(count) {
            let pair = if turn % 2 == 0 { [absent, forbidden] } else { [forbidden, absent] };
            targets.extend(pair.map(|cid| Target { to: Address::Vsock(*cid), port: *port }));
        }
    }
    let mut client = Client::connect(agent.display().to_string(), &agent, Duration::from_secs(15))?;
    let mut found = Vec::new();
    for targets in targets.chunks(MAX_TARGETS) {
        let probe = Probe { targets: targets.to_vec(), rounds };
        match client.call(Request::Probe(probe), PATIENCE)? {
            Answer::Probed(probed) => found.extend(targets.iter().cloned().zip(probed)),
            _ => bail!("the agent has answered something else"),
        }
    }
    let of = |cids: &[u32]| {
        let theirs = |target: &Target| matches!(target.to, Address::Vsock(cid) if cids.contains(&cid));
        let mut sum = Probed::default();
        for (_, probed) in found.iter().filter(|(target, _)| theirs(target)) {
            sum.connected += probed.connected;
            sum.refused += probed.refused;
            sum.silent += probed.silent;
            sum.took_ns.add(&probed.took_ns);
        }
        sum
    };
    let (absent, forbidden) = (of(&absent), of(&forbidden));
    let result = json!({
        "targets": targets.len(),
        "absent": shown(&absent),
        "forbidden": shown(&forbidden),
        // One half if the times cannot be told apart.
        "forbidden_takes_longer": forbidden.took_ns.chance_above(&absent.took_ns),
    });
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

fn shown(probed: &Probed) -> Value {
    let Probed { connected, refused, silent, took_ns } = probed;
    let quantiles = |latencies: &Latencies| [0.01, 0.5, 0.9, 0.99].map(|at| latencies.quantile_us(at));
    json!({ "connected": connected, "refused": refused, "silent": silent, "p1_p50_p90_p99_us": quantiles(took_ns) })
}
