use std::io::{Read as _, Write as _};

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn read_all(text: &str) -> Result<Launched, LaunchError> {
    let mut report = Report::default();
    report.feed(text.as_bytes())?;
    report.finish()
}

#[test]
fn a_program_that_started_has_a_number_and_a_list_of_missing_walls() {
    let text = "{\"pid\":4711}\n{\"missing\":[{\"wall\":\"landlock\",\"reason\":\"no LSM\"}]}\n";
    let launched = read_all(text).unwrap();
    assert_eq!(launched.pid, 4711);
    assert_eq!(launched.missing, [Missing { wall: Wall::Landlock, reason: "no LSM".to_owned() }]);
    assert_eq!(read_all("{\"pid\":1}\n{\"missing\":[]}\n").unwrap().missing, []);
}

#[test]
fn lines_are_written_as_they_are_read() {
    let missing = vec![Missing { wall: Wall::OomScore, reason: "EACCES".to_owned() }];
    let failed = Line::Failed { step: Step::Root, error: "mkdir".to_owned() };
    for (line, text) in [
        (Line::Pid(7), r#"{"pid":7}"#),
        (Line::Missing(missing), r#"{"missing":[{"wall":"oom_score","reason":"EACCES"}]}"#),
        (Line::Skeleton(true), r#"{"skeleton":true}"#),
        (failed, r#"{"failed":{"step":"root","error":"mkdir"}}"#),
    ] {
        assert_eq!(serde_json::to_string(&line).unwrap(), text);
        assert_eq!(serde_json::from_str::<Line>(text).unwrap(), line);
    }
}

#[test]
fn a_failure_names_step_cause_and_process() {
    let error = read_all("{\"failed\":{\"step\":\"limits\",\"error\":\"no such folder\"}}\n").unwrap_err();
    assert_eq!(error.to_string(), "step 3 of the launch, limits, failed: no such folder");
    assert_eq!(error.hint(), Step::Limits.hint());
    assert_eq!(error.pid(), None);
    let text = "{\"pid\":8}\n{\"missing\":[]}\n{\"failed\":{\"step\":\"exec\",\"error\":\"ENOENT\"}}\n";
    let error = read_all(text).unwrap_err();
    assert!(matches!(&error, LaunchError::Failed { step: Step::Exec, .. }), "{error:?}");
    assert_eq!(error.pid(), Some(8));
}

#[test]
fn an_early_end_is_no_start() {
    assert!(matches!(read_all(""), Err(LaunchError::Ended { pid: None })));
    assert!(matches!(read_all("{\"pid\":8}\n"), Err(LaunchError::Ended { pid: Some(8) })));
    assert!(matches!(read_all("{\"skeleton\":true}\n"), Err(LaunchError::Ended { pid: None })));
    assert!(matches!(read_all("{\"pid\":8}\n{\"miss"), Err(LaunchError::Unexpected { pid: Some(8), .. })));
}

#[test]
fn lines_out_of_order_are_refused() {
    let failed = r#"{"failed":{"step":"root","error":"x"}}"#;
    for lines in [
        vec![r#"{"missing":[]}"#],
        vec![r#"{"pid":0}"#],
        vec![r#"{"pid":2147483648}"#],
        vec![r#"{"pid":-1}"#],
        vec![r#"{"pid":8}"#, r#"{"pid":9}"#],
        vec![r#"{"pid":8}"#, r#"{"missing":[]}"#, r#"{"missing":[]}"#],
        vec![r#"{"pid":8}"#, r#"{"skeleton":true}"#],
        vec![r#"{"skeleton":false}"#],
        vec![failed, r#"{"pid":8}"#],
        vec![failed, failed],
        vec![r#"{"ready":true}"#],
        vec![r#"{"failed":{"step":"no such step","error":"x"}}"#],
        vec![r#"{"missing":[{"wall":"moat","reason":""}]}"#],
        vec![""],
        vec!["\u{1b}[2J"],
    ] {
        let text = lines.join("\n") + "\n";
        let error = read_all(&text).unwrap_err();
        assert!(matches!(error, LaunchError::Unexpected { .. }), "{text}: {error:?}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}

#[test]
fn a_report_is_bounded() {
    let mut report = Report::default();
    report.feed(b"{\"pid\":8}\n").unwrap();
    let endless = vec![b'x'; 4096];
    let error = (0..100).find_map(|_| report.feed(&endless).err()).expect("an error");
    assert!(matches!(error, LaunchError::TooLong { pid: Some(8) }), "{error:?}");
    assert!(report.rest.len() <= MAX_REPORT);
    let nested = format!("{}\n", "[".repeat(MAX_REPORT - 1));
    assert!(matches!(read_all(&nested), Err(LaunchError::Unexpected { .. })));
}

#[test]
fn texts_are_fit_for_a_terminal() {
    let long = "\\u001b[31m".to_owned() + &"x".repeat(5000);
    let text = format!("{{\"failed\":{{\"step\":\"root\",\"error\":\"{long}\"}}}}\n");
    let LaunchError::Failed { error, .. } = read_all(&text).unwrap_err() else { panic!() };
    assert!(error.starts_with(" [31mxxx"), "{error}");
    assert_eq!(error.chars().count(), SHOWN);
}

#[test]
fn a_pipe_is_read_to_its_end_and_not_longer_than_allowed() {
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"{\"pid\":8}\n{\"mis").unwrap();
    let error = read_waiting(&reader, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, LaunchError::Silent { pid: Some(8), .. }), "{error:?}");
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"{\"pid\":8}\n{\"missing\":[]}\n").unwrap();
    let waiting = read_waiting(&reader, PATIENCE).unwrap();
    assert_eq!(waiting.launched, Launched { pid: 8, missing: Vec::new() });
    drop(writer);
    let (mut confirmed, confirm) = io::pipe().unwrap();
    assert_eq!(waiting.finish(confirm.into(), &reader, PATIENCE).unwrap().pid, 8);
    assert_eq!(confirmed.read(&mut [0; 9]).unwrap(), 1);
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"{\"skeleton\":true}\n").unwrap();
    drop(writer);
    read_skeleton_report(&reader, PATIENCE).unwrap();
}

proptest! {
    /// Any bytes, in any pieces, end in a result and never in a start that was not reported.
    #[test]
    fn any_bytes_end_in_a_result(pieces in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..200), 0..20)) {
        let mut report = Report::default();
        for piece in &pieces {
            if report.feed(piece).is_err() {
                return Ok(());
            }
        }
        if let Ok(launched) = report.finish() {
            prop_assert!(is_process(launched.pid));
        }
    }

    /// The pieces in which a report arrives do not matter.
    #[test]
    fn pieces_do_not_matter(size in 1_usize..40) {
        let text = b"{\"pid\":4711}\n{\"missing\":[{\"wall\":\"landlock\",\"reason\":\"no\"}]}\n";
        let mut report = Report::default();
        for piece in text.chunks(size) {
            report.feed(piece).unwrap();
        }
        prop_assert_eq!(report.finish().unwrap().pid, 4711);
    }
}
