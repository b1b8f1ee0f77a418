//! iperf3 (select) and a web server with its client (poll, big files).

use super::{MACHINE, Machine, free_port};

#[test]
fn iperf3_measures_both_directions() {
    let machine = Machine::new();
    let mut before = 0;
    for more in [&[][..], &["-R"], &["--bidir"], &["-P", "4"], &["-N", "-w", "128K", "-Z"]] {
        // `-1` ends the server after one test: a server that continues refuses clients for a
        // moment.
        let port = free_port();
        let port_word = port.to_string();
        let _server = machine.serve(machine.program("iperf3").args(["-s", "-1", "-p", &port_word]), port);
        let args = ["-c", MACHINE, "-p", &port_word, "-n", "16M", "-J"];
        let report = machine.run("iperf3", &args.into_iter().chain(more.iter().copied()).collect::<Vec<_>>());
        let report: serde_json::Value = serde_json::from_str(&report).expect("iperf3 writes JSON");
        assert!(report.get("error").is_none(), "{more:?}: {report}");
        // The client ends when one direction is done.
        let sent = ["sum_sent", "sum_sent_bidir_reverse"].map(|sum| report["end"][sum]["bytes"].as_u64());
        assert!(sent.into_iter().max().flatten() >= Some(16 << 20), "{more:?}: {report}");
        let streams = report["start"]["connected"].as_array().unwrap().len();
        assert_eq!(report["start"]["connected"][0]["remote_host"], MACHINE);
        assert_eq!(
            machine.connections() - before,
            streams + 1,
            "{more:?}: the streams and what controls them"
        );
        before = machine.connections();
    }
}

#[test]
fn a_web_server_delivers_files() {
    let machine = Machine::new();
    let port = free_port();
    let www = machine.path().join("www");
    std::fs::create_dir(&www).unwrap();
    let content: Vec<u8> =
        (0..10_000_000u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(www.join("file"), &content).unwrap();
    let mut command = machine.program("python3");
    command.args(["-m", "http.server", &port.to_string(), "--bind", "0.0.0.0", "--directory", "www"]);
    let _server = machine.serve(&mut command, port);
    for round in 0..3 {
        let got = machine.path().join(format!("got{round}"));
        let url = format!("http://{MACHINE}:{port}/file");
        let told = machine
            .run("curl", &["-sS", "--fail", "--output", got.to_str().unwrap(), "-w", "%{remote_ip}", &url]);
        assert_eq!(told, MACHINE);
        assert!(std::fs::read(&got).unwrap() == content, "round {round}");
    }
    assert_eq!(machine.connections(), 3);
}
