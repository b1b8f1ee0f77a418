use super::*;

fn options() -> LoadOptions {
    LoadOptions {
        sockets: ["/nonexistent/0", "/nonexistent/1"].map(PathBuf::from),
        listen: false,
        mode: Mode::OneWay,
        pause: Duration::ZERO,
        size: 64,
        duration: Duration::from_millis(10),
        repeats: 1,
        entries: 256,
        burst: 32,
        packed: false,
        in_order: true,
        flows: 1,
        macs: 1,
        touch: false,
        settle: Duration::ZERO,
        cpu: None,
        probe: None,
        huge_pages: false,
        memcpy: false,
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_value() {
    let refused = [
        (LoadOptions { size: 59, ..options() }, "frame size 59 is not in 60 to 65549"),
        (LoadOptions { size: 65_550, ..options() }, "frame size 65550 is not in 60 to 65549"),
        (LoadOptions { burst: 65, ..options() }, "burst 65 is not in 1 to 64"),
        (LoadOptions { flows: 0, ..options() }, "number of flows 0 is not in 1 to 65536"),
        (LoadOptions { macs: 5000, ..options() }, "number of MACs 5000 is not in 1 to 4096"),
        (LoadOptions { entries: 100, ..options() }, "ring size 100 is not a power of two"),
        (LoadOptions { entries: 32, ..options() }, "ring size 32 is not in 64 to 4096"),
    ];
    for (options, reason) in refused {
        assert_eq!(run(&options).unwrap_err().to_string(), reason);
    }
    assert!(check(&options()).is_ok());
}

#[test]
fn results_keep_their_names() {
    let sample = Sample {
        probe_ns: Some([101.0, 103.5]),
        figures: Figures { mpps: Some(40.5), ..Figures::default() },
        ..Sample::default()
    };
    let text = serde_json::to_string(&sample).unwrap();
    assert_eq!(text, r#"{"probe_ns":[101.0,103.5],"mpps":40.5}"#);
    assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
}
