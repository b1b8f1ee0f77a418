//! Help, manual pages, completion and errors as the program prints them.

use std::process::{Command, Output};

/// VM file that help and manual page show.
const SAMPLE: &str = include_str!("../../../demo/vm.toml");

fn taut(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut"));
    command.args(args).env("COLUMNS", "80").env_remove("TAUT_SOCKET");
    command
}

fn run(args: &[&str]) -> Output {
    taut(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns what a reader copies from behind a heading, as TOML.
fn copied(text: &str, heading: &str) -> toml::Table {
    let (_, sample) = text.split_once(heading).unwrap_or_else(|| panic!("no `{heading}` in:\n{text}"));
    sample.parse().unwrap_or_else(|error| panic!("{error}\n{sample}"))
}

/// Does what a terminal does with an unfilled part of a manual page.
fn shown(page: &str) -> String {
    let unfilled = page.split_once(".nf\n").unwrap().1.split_once(".fi\n").unwrap().0;
    let plain = unfilled.replace("\\&.", ".").replace("\\-", "-").replace("\\(aq", "'");
    plain.replace("\\(ga", "`").replace("\\(ha", "^").replace("\\(ti", "~").replace("\\e", "\\")
}

#[test]
fn the_sample_file_of_the_help_parses_at_80_columns() {
    let help = text(&run(&["vm", "create", "--help"]).stdout);
    let sample: toml::Table = SAMPLE.parse().unwrap();
    assert_eq!(copied(&help, "A file with every key:\n"), sample);
    let usage = help.split_once("A file with every key").unwrap().0;
    assert!(usage.contains("Usage: taut vm create") && usage.lines().all(|line| line.len() <= 80), "{usage}");
    assert!(!text(&run(&["vm", "create", "-h"]).stdout).contains("[disk]"));
}

#[test]
fn the_sample_file_of_the_manual_page_parses() {
    let dir = tempfile::tempdir().unwrap();
    let written = run(&["man", dir.path().to_str().unwrap()]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let page = std::fs::read_to_string(dir.path().join("taut-vm-create.1")).unwrap();
    assert_eq!(shown(&page).parse::<toml::Table>().unwrap(), SAMPLE.parse::<toml::Table>().unwrap());
    assert_eq!(shown(&page).trim(), SAMPLE.trim());
    for page in ["taut.1", "taut-portgroup-show.1", "taut-netns-set.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = taut(&["completions", "bash"]).stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = taut(&["completions", "bash"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("\nhint: "), "{}", text(&output.stderr));
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let error = |args: &[&str], status: i32| -> serde_json::Value {
        let output = run(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        serde_json::from_slice(&output.stderr).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    };
    let refused = error(&["-o", "json", "--socket", "/nonexistent/sock", "vm", "list"], 1);
    assert_eq!(refused["kind"], "unavailable");
    assert_eq!(refused["message"], "no daemon answers on /nonexistent/sock");
    assert!(refused["causes"][0].as_str().unwrap().contains("No such file"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().starts_with("start tautd"), "{refused}");
    let usage = error(&["vm", "crate", "--output=json"], 2);
    assert_eq!(usage["message"], "unrecognized subcommand 'crate'");
    assert_eq!(usage["hint"], "`taut vm --help` explains the arguments");
    assert_eq!(error(&["-ojson", "check", "host", "--root", "/nonexistent"], 2)["kind"], "unavailable");
    let plain = text(&run(&["--socket", "/nonexistent/sock", "vm", "list"]).stderr);
    assert!(plain.starts_with("error: no daemon answers"), "{plain}");
}

#[test]
fn completion_without_a_daemon_is_silent_and_quick() {
    let started = std::time::Instant::now();
    let mut asked = taut(&["--", "taut", "--socket", "/nonexistent/sock", "vm", "show", ""]);
    asked.env("TAUT_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "5").env("_CLAP_IFS", "\n");
    let answer = asked.output().unwrap();
    assert!(answer.status.success() && answer.stderr.is_empty(), "{}", text(&answer.stderr));
    assert!(started.elapsed().as_secs() < 2);
    let script = text(&run(&["completions", "bash"]).stdout);
    assert!(script.contains("TAUT_COMPLETE") && script.contains("complete "), "{script}");
}
