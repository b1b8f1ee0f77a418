use std::path::PathBuf;

use super::*;

fn options(setup: Setup) -> LoadOptions {
    let sockets = ["/nonexistent/0", "/nonexistent/1"].map(PathBuf::from);
    LoadOptions { sockets, setup, repeats: 1, ..LoadOptions::default() }
}

#[test]
fn a_value_out_of_range_is_refused() {
    let refused = [
        (Setup { size: 59, ..Setup::default() }, "frame size 59 is not in 60 to 65549"),
        (Setup { size: 65_550, ..Setup::default() }, "frame size 65550 is not in 60 to 65549"),
        (Setup { burst: 65, ..Setup::default() }, "burst 65 is not in 1 to 64"),
        (Setup { flows: 0, ..Setup::default() }, "number of flows 0 is not in 1 to 65536"),
        (Setup { macs: 5000, ..Setup::default() }, "number of MACs 5000 is not in 1 to 4096"),
        (Setup { entries: 100, ..Setup::default() }, "ring size 100 is not a power of two"),
        (Setup { entries: 32, ..Setup::default() }, "ring size 32 is not in 64 to 4096"),
        (Setup { prepared: 100, ..Setup::default() }, "number of prepared frames 100 is not in 512 to 65536"),
    ];
    for (setup, reason) in refused {
        assert_eq!(run(&options(setup)).unwrap_err().to_string(), reason);
    }
    assert!(Setup::default().check().is_ok());
    assert!(Setup { prepared: MAX_FLOWS, ..Setup::default() }.check().is_ok());
}

#[test]
fn json_keeps_its_field_names() {
    let sample = Sample {
        probe_ns: Some([101.0, 103.5]),
        figures: Figures { mpps: Some(40.5), ..Figures::default() },
        ..Sample::default()
    };
    let text = serde_json::to_string(&sample).unwrap();
    assert_eq!(text, r#"{"probe_ns":[101.0,103.5],"mpps":40.5}"#);
    assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
}
