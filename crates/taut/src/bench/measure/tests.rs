use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use taut_bench::agent::protocol::{self, AgentError, Configure, Hello, PROTOCOL, Throughput};
use taut_bench::agent::{self, Backend, Client, Run, Serving, Spinning};
use taut_bench::measure::latencies::Latencies;

use super::*;
use crate::bench::parties::Party;

/// An agent that measures nothing and returns plausible answers.
#[derive(Default)]
struct Fake {
    ip: &'static str,
    /// Number of requests for CPU time. Each answer adds 10 ms used and 10 ms idle.
    asked: AtomicU64,
}

struct Listening;

impl Serving for Listening {
    fn port(&self) -> u16 {
        4242
    }
}

impl Backend for Fake {
    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: "1".to_owned(),
            kind: protocol::Kind::Guest,
            hostname: "fake".to_owned(),
            kernel: "6.1".to_owned(),
        }
    }

    fn addresses(&self) -> Result<Vec<Interface>, AgentError> {
        Ok(vec![Interface {
            name: "eth0".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            ips: vec![self.ip.parse().unwrap()],
            carrier: true,
            carrier_changes: 0,
        }])
    }

    fn configure(&self, _: &Configure) -> Result<(), AgentError> {
        Ok(())
    }

    fn cid(&self) -> Result<u32, AgentError> {
        Err(AgentError::new("no VMCI device", "none"))
    }

    fn serve(&self, _: &Serve) -> Result<Box<dyn Serving>, AgentError> {
        Ok(Box::new(Listening))
    }

    fn spin(&self) -> Result<Box<dyn Spinning>, AgentError> {
        Err(AgentError::new("no CPU", "none"))
    }

    fn ping(&self, wanted: &Ping, _: &Run<'_>) -> Result<Latency, AgentError> {
        if wanted.size == 0 {
            return Err(AgentError::new("no echo of nothing", "send something"));
        }
        let rtt_ns = Latencies::from(vec![(1000, 3)]);
        Ok(Latency { rtt_ns, sent: 5, lost: 2, duplicates: 0, elapsed_us: 1_000_000 })
    }

    fn rr(&self, wanted: &Rr, _: &Run<'_>) -> Result<Latency, AgentError> {
        assert_eq!((wanted.to.clone(), wanted.port), (Ipv4Addr::new(10, 0, 0, 2).into(), 4242));
        let rtt_ns = Latencies::from(vec![(50_000, 90), (90_000, 10)]);
        Ok(Latency { rtt_ns, sent: 100, lost: 0, duplicates: 0, elapsed_us: 500_000 })
    }

    fn stream(&self, wanted: &Stream, _: &Run<'_>) -> Result<Throughput, AgentError> {
        assert_eq!((wanted.socket_size, wanted.send_size, wanted.sessions), (Some(1), 2, 4));
        Ok(Throughput { bytes: 250_000_000, elapsed_us: 2_000_000, sessions: vec![250_000_000] })
    }

    fn probe(&self, _: &protocol::Probe, _: &Run<'_>) -> Result<Vec<protocol::Probed>, AgentError> {
        Err(AgentError::new("no probes", "none"))
    }

    fn cpu(&self) -> Result<protocol::Cpu, AgentError> {
        let user_us = 10_000 * self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(protocol::Cpu { cpus: 2, user_us, idle_us: user_us, ..protocol::Cpu::default() })
    }

    fn poweroff(&self) -> Result<(), AgentError> {
        Ok(())
    }
}

/// Connects both ends with these addresses. Returns the ids of sender and receiver.
fn pair(sender: &'static str, receiver: &'static str) -> (Parties, Id, Id) {
    let mut parties = Parties::default();
    let [sender, receiver] = [("a", sender), ("b", receiver)].map(|(name, ip)| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || agent::serve(&theirs, &theirs, &Fake { ip, ..Fake::default() }));
        let input = ours.try_clone().unwrap();
        let agent = Client::over(name, input.into(), ours.into(), PATIENCE).unwrap();
        parties.add(Party { end_point: name.parse().unwrap(), accelerator: None, agent })
    });
    (parties, sender, receiver)
}

const SECOND: Duration = Duration::from_secs(1);

fn measured(measurement: &Measurement) -> Result<Figures, ApiError> {
    let (mut parties, a, b) = pair("10.0.0.1/24", "10.0.0.2/24");
    let line = Line::prepare(&mut parties, a, b, None, measurement)?;
    assert_eq!(line.describe_receiver(&parties).address, Some(Ipv4Addr::new(10, 0, 0, 2).into()));
    line.measure(&mut parties, measurement, None)
}

#[test]
fn a_ping_has_latencies_and_losses() {
    let figures = measured(&Measurement::Ping { size: 1, interval_us: 1, duration: SECOND }).unwrap();
    assert_eq!((figures.count, figures.lost, figures.per_s, figures.mbit_s), (Some(3), Some(2), None, None));
    assert_eq!(figures.p50_us, Some(1.0));
    assert_eq!(
        (figures.cpu.sender, figures.cpu.receiver, figures.cpu.fabric),
        (Some(100.0), Some(100.0), None)
    );
}

#[test]
fn transactions_are_counted_per_second() {
    let figures =
        measured(&Measurement::Rr { socket_size: None, size: 1, interval_us: None, duration: SECOND })
            .unwrap();
    assert_eq!((figures.count, figures.lost, figures.per_s), (Some(100), None, Some(200.0)));
    assert!(figures.p99_us > figures.p50_us);
}

#[test]
fn a_stream_has_throughput_alone() {
    let (socket_size, send_size, receive_size, sessions) = (Some(1), 2, 3, 4);
    let figures = measured(&Measurement::Stream {
        socket_size,
        send_size,
        receive_size,
        sessions,
        check: false,
        duration: SECOND,
    })
    .unwrap();
    assert_eq!((figures.mbit_s, figures.count, figures.histogram), (Some(1000.0), None, None));
    assert_eq!(figures.fairness, None, "of one session");
}

#[test]
fn an_agent_s_error_is_shown_with_its_hint() {
    let error = measured(&Measurement::Ping { size: 0, interval_us: 1, duration: SECOND }).unwrap_err();
    insta::assert_snapshot!(error, @r"
    the agent of a could not do what it was asked
      because: no echo of nothing
    hint: send something
    ");
}

#[test]
fn end_points_without_a_common_network_are_named_with_their_addresses() {
    let (mut parties, a, b) = pair("10.0.0.1/24", "10.9.0.2/24");
    let ping = Measurement::Ping { size: 1, interval_us: 1, duration: SECOND };
    let error = Line::prepare(&mut parties, a, b, None, &ping).unwrap_err();
    insta::assert_snapshot!(error, @r"
    b has no address in a network of a: b has eth0 (10.9.0.2/24), a has eth0 (10.0.0.1/24)
    hint: give --address if there is a router between them; otherwise put both on one port group, with addresses of one network
    ");
    let given = Some(Ipv4Addr::new(10, 9, 0, 2));
    assert!(Line::prepare(&mut parties, a, b, given, &ping).is_ok());
    assert_eq!(Line::prepare(&mut parties, a, a, None, &ping).unwrap().to, Ipv4Addr::LOCALHOST.into());
}
