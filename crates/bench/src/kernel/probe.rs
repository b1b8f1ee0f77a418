//! Probing: which servers answer, and how fast.

use std::io::ErrorKind;
use std::time::Instant;

use super::socket::Socket;
use crate::agent::Run;
use crate::agent::protocol::{AgentError, Probe, Probed};

/// Connects to every target in turn.
pub(super) fn run(wanted: &Probe, run: &Run<'_>) -> Result<Vec<Probed>, AgentError> {
    let mut found = wanted.begin()?;
    run.started();
    for _ in 0..wanted.rounds {
        for (target, found) in wanted.targets.iter().zip(&mut found) {
            if run.is_stopped() {
                return Ok(Vec::new());
            }
            let begun = Instant::now();
            let outcome = Socket::probe(&target.to, target.port);
            let took = begun.elapsed();
            match outcome {
                Ok(_) => found.connected += 1,
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    found.silent += 1;
                    continue;
                }
                Err(_) => found.refused += 1,
            }
            found.took_ns.record(took);
        }
    }
    Ok(found)
}
