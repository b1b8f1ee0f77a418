//! redis-benchmark with one client: a text that the server sends back (`ECHO`), so that request and
//! response have the same size.

use super::latency::Latency;
use super::{SERVER, Way, run_in, sample, serve, until_it_works};
use crate::lab::Lab;
use crate::machine::Text;
use crate::reason::{Measured, require};

const PORT: u16 = 6379;
const OPTIONS: &str = "--bind 0.0.0.0 --protected-mode no --save '' --appendonly no";

/// Starts a server for each of these ways, and waits until they serve.
pub(in super::super) fn start(lab: &mut Lab, ways: &[Way]) -> Measured<()> {
    for &way in ways {
        let command = format!("redis-server --port {} {OPTIONS}", way.port(PORT));
        serve(lab, way, "redis-server", &command)?;
        // redis-benchmark does not end if nobody listens.
        let ping = format!("{}redis-cli -h {SERVER} -p {} ping", way.variables(), way.port(PORT));
        until_it_works(lab, "Redis answers", |lab| {
            let answer = run_in(lab, "a", "ping", &ping, 30)?;
            require(answer.contains("PONG"), format!("it answers `{}`", answer.trimmed()))?;
            latency(lab, way, 64, 100).map(drop)
        })?;
    }
    Ok(())
}

/// Port of the server of a way.
pub(in super::super) fn port(way: Way) -> u32 {
    way.port(PORT).into()
}

/// Command of the client. The text is made by the guest's shell: it is too long for a log.
pub(in super::super) fn command(way: Way, size: u32, requests: u32) -> String {
    let (variables, port) = (way.variables(), way.port(PORT));
    let options = format!("-h {SERVER} -p {port} -c 1 -n {requests} --csv");
    format!("{variables}redis-benchmark {options} ECHO \"$(printf '%0{size}d' 0)\"")
}

/// Measures so many requests of a to b.
pub(in super::super) fn latency(lab: &mut Lab, way: Way, size: u32, requests: u32) -> Measured<Latency> {
    sample(lab, way, |lab| {
        let text = run_in(lab, "a", "redis", &command(way, size, requests), 120)?;
        Ok((percentiles(&text)?, f64::from(size) * f64::from(requests)))
    })
}

/// Reads percentiles from the client's table.
pub(in super::super) fn percentiles(text: &Text) -> Measured<Latency> {
    let us = |name: &str| Measured::Ok(text.column(name)? * 1000.0);
    Ok(Latency { p50_us: us("p50_latency_ms")?, p99_us: us("p99_latency_ms")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_redis_7_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"ECHO 0000\",\"25000.00\",\"0.022\",\"0.016\",\"0.023\",\"0.031\",\"0.103\",\"0.104\"\n";
        let latency = percentiles(&Text::from(text)).unwrap();
        assert!((latency.p50_us - 23.0).abs() < 1e-9 && (latency.p99_us - 103.0).abs() < 1e-9, "{latency:?}");
    }

    #[test]
    fn a_client_that_does_not_reach_its_server_has_no_percentiles() {
        let refused = "Could not connect to Redis at 10.82.0.2:6380: Connection refused";
        assert!(percentiles(&Text::from(refused)).is_err());
        assert!(percentiles(&Text::from("\"test\",\"rps\",\"p50_latency_ms\"\n")).is_err());
    }
}
