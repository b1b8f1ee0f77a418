//! iperf3: streams of writes of one size.

use super::{SERVER, Way, run_in, sample, serve, until_it_works};
use crate::lab::Lab;
use crate::machine::Text;
use crate::reason::Measured;

const PORT: u16 = 5201;

/// Starts a server for each of these ways, and waits until they serve.
pub(in super::super) fn start(lab: &mut Lab, ways: &[Way]) -> Measured<()> {
    for &way in ways {
        serve(lab, way, "iperf3-server", &format!("iperf3 -s -p {}", way.port(PORT)))?;
        until_it_works(lab, "iperf3's server answers", |lab| {
            mbit_s(lab, way, Streams { size: 4096, sessions: 1, seconds: 1 }).map(drop)
        })?;
    }
    Ok(())
}

/// Port of the server of a way.
pub(in super::super) fn port(way: Way) -> u32 {
    way.port(PORT).into()
}

/// Streams of writes.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Streams {
    /// Bytes of a write.
    pub(in super::super) size: u32,
    pub(in super::super) sessions: u32,
    pub(in super::super) seconds: u32,
}

impl Streams {
    /// Command of the client.
    pub(in super::super) fn command(self, way: Way) -> String {
        let Self { size, sessions, seconds } = self;
        let (variables, port) = (way.variables(), way.port(PORT));
        format!("{variables}iperf3 -J -i 0 -c {SERVER} -p {port} -l {size} -P {sessions} -t {seconds}")
    }
}

/// Measures streams from a to b: Mbit/s that the server has received.
pub(in super::super) fn mbit_s(lab: &mut Lab, way: Way, streams: Streams) -> Measured<f64> {
    sample(lab, way, |lab| {
        let limit = u64::from(streams.seconds) + 60;
        received(&run_in(lab, "a", "iperf3", &streams.command(way), limit)?)
    })
}

/// Reads Mbit/s and bytes of the receiver from the client's report.
fn received(text: &Text) -> Measured<(f64, f64)> {
    let sum = text.json()?.at("end.sum_received")?;
    Ok((sum.number("bits_per_second")? / 1e6, sum.number("bytes")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_counts() {
        let report = r#"{"start": {}, "intervals": [], "end": {
            "sum_sent": {"bytes": 9000000, "bits_per_second": 72000000.0, "sender": true},
            "sum_received": {"seconds": 1.0, "bytes": 8000000, "bits_per_second": 64000000.0}}}"#;
        assert_eq!(received(&Text::from(report)), Ok((64.0, 8e6)));
        for report in [
            r#"{"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"}"#,
            r#"{"end": {"sum_received": {"bytes": 8000000, "bits_per_second": null}}}"#,
            "iperf3: error - unable to connect",
            "",
        ] {
            assert!(received(&Text::from(report)).is_err(), "{report}");
        }
    }

    #[test]
    fn the_client_writes_messages_of_the_size() {
        let command = Streams { size: 4096, sessions: 5, seconds: 3 }.command(Way::Tcp);
        assert_eq!(command, "iperf3 -J -i 0 -c 10.82.0.2 -p 5201 -l 4096 -P 5 -t 3");
    }
}
