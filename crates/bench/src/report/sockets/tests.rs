use super::*;
use crate::measure::latencies::Latencies;
use crate::report::{Cpu, example_host};

fn results(mode: SocketMode) -> SocketResults {
    let end = |name: &str, cid: u32| EndPoint {
        name: name.to_owned(),
        kind: "micro".to_owned(),
        kernel: "smoltcp".to_owned(),
        address: Some(crate::agent::protocol::Address::Vsock(cid)),
        accelerator: None,
    };
    SocketResults {
        mode,
        duration_s: 2.0,
        host: example_host(),
        sender: end("a", 3),
        receiver: end("b", 4),
        cells: Vec::new(),
    }
}

fn streams() -> SocketResults {
    let mut results = results(SocketMode::Stream);
    for sessions in [1, 5] {
        for (transport, socket, scale) in [
            (Transport::Tcp, 262_144, 1.0),
            (Transport::Vsock, 262_144, 3.0),
            (Transport::Vsock, 65_536, 2.0),
        ] {
            for message in [64, 4096, 65_536] {
                let mut cell = SocketCell::new(transport, socket, message, sessions);
                for noise in [1.0, 1.5, 0.9] {
                    let mbit_s = Some(scale * noise * f64::from(message));
                    let fairness = (sessions > 1).then_some(0.9 + 0.05 * scale.min(1.0));
                    cell.add(Figures { mbit_s, fairness, ..Figures::default() });
                }
                results.cells.push(cell);
            }
        }
    }
    results
}

fn round_trips() -> SocketResults {
    let mut results = results(SocketMode::Rr);
    for transport in [Transport::Vsock, Transport::Tcp] {
        let mut cell = SocketCell::new(transport, 65_536, 256, 1);
        let latencies = Latencies::from(vec![(20_000, 980), (55_000, 19), (1_200_000, 1)]);
        let cpu = Cpu { host: Some(151.0), ..Cpu::default() };
        cell.add(Figures { per_s: Some(41_000.0), cpu, ..Figures::of_latencies(latencies) });
        results.cells.push(cell);
    }
    results
}

#[test]
fn streams_as_table() {
    insta::assert_snapshot!(streams().table(), @r"
    OVER    SOCKET  SESSIONS  64 B  4 KiB  64 KiB  FAIRNESS
    vsock   64 KiB         1   128   8192  131072         -
    vsock  256 KiB         1   192  12288  196608         -
    tcp    256 KiB         1    64   4096   65536         -
    vsock   64 KiB         5   128   8192  131072     0.950
    vsock  256 KiB         5   192  12288  196608     0.950
    tcp    256 KiB         5    64   4096   65536     0.950

    units     payload received in Mbit/s, 1 Mbit = 10⁶ bit; fairness (Σx)²/(n·Σx²)
    measured  2 s, 3 repeats
    between   a (micro, smoltcp, vsock:3) → b (micro, smoltcp, vsock:4)
    on        lab1: 2 × Example CPU, Debian, Linux 6.18.0, tcg, taut 0.1.0
    ");
}

#[test]
fn round_trips_as_table() {
    insta::assert_snapshot!(round_trips().table(), @r"
    OVER   SOCKET  MESSAGE   P50   P90   P99  P99.9  P99.99  PER SECOND  HOST %
    vsock  64 KiB    256 B  20.0  20.0  55.0   55.0    1200       41000     151
    tcp    64 KiB    256 B  20.0  20.0  55.0   55.0    1200       41000     151

    units     µs; CPU in percent of one CPU
    measured  2 s, 1 repeat
    between   a (micro, smoltcp, vsock:3) → b (micro, smoltcp, vsock:4)
    on        lab1: 2 × Example CPU, Debian, Linux 6.18.0, tcg, taut 0.1.0
    ");
}

#[test]
fn the_pictures_name_every_message_and_socket_size() {
    let svg = streams().svg().unwrap();
    for part in
        ["a → b", "64 B", "64 KiB", "vsock, sockets of 256 KiB", "tcp, sockets", "5 sessions", "197", "lab1"]
    {
        assert!(svg.contains(part), "{part} is not in the picture");
    }
    assert!(round_trips().svg().unwrap().contains("µs"));
}

#[test]
fn json_is_read_as_it_was_written() {
    let text = serde_json::to_string(&round_trips()).unwrap();
    assert_eq!(serde_json::from_str::<SocketResults>(&text).unwrap(), round_trips());
}
