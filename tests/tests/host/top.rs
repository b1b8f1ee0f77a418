//! `taut top` beside VMs of other programs, without a daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use taut_tests::{bin_dir, busy_machine, directory, eventually};

/// Rows of a view: each has the values by the titles of their columns.
type Table = Vec<BTreeMap<String, String>>;

/// Splits a line of CSV (RFC 4180) into its fields.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let last = fields.last_mut().unwrap();
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => last.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => last.push(c),
        }
    }
    assert!(!quoted, "a quote has no end: {line}");
    fields
}

/// Runs `taut top` for three samples and returns the rows of each view.
fn sampled(options: &[&str]) -> BTreeMap<String, Table> {
    let mut taut = Command::new(bin_dir().join("taut"));
    taut.args(["--socket", "/nonexistent/tautd.sock", "top", "-b", "-d", "1", "-n", "3"]);
    let output = taut.args(options).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(fields).peekable();
    let mut headers = Vec::new();
    while let Some(header) = lines.next_if(|fields| fields[0] == "TIME") {
        headers.push(header);
    }
    let words = ["cpu", "memory", "network", "disk", "interrupt", "vm-disk"];
    let words = if options.is_empty() { &words[..] } else { &words[..1] };
    assert_eq!(headers.len(), words.len(), "each view has its titles");
    let headers: BTreeMap<_, _> = words.iter().map(|word| (*word).to_owned()).zip(headers).collect();
    let mut tables = BTreeMap::<String, Table>::new();
    for line in lines {
        let header = &headers[&line[1]];
        assert_eq!(line.len(), header.len(), "{line:?}");
        tables.entry(line[1].clone()).or_default().push(header.iter().cloned().zip(line).collect());
    }
    tables
}

/// Returns the mean of a column in the rows with this name.
fn mean(table: &Table, name: &str, column: &str) -> Option<f64> {
    let rows = table.iter().filter(|row| row["NAME"] == name);
    let values: Vec<f64> = rows.filter_map(|row| row[column].parse().ok()).collect();
    (values.len() == 3).then(|| values.iter().sum::<f64>() / 3.0)
}

#[test]
fn foreign_vms_are_watched_without_a_daemon() {
    let dir = directory();
    let names = ["top \"1\"", "top2"];
    let _machines = names.map(|name| busy_machine(dir.path(), name, 1));
    eventually("both vCPUs compete for one pCPU", || {
        let cpu = sampled(&["--view", "c"]).remove("cpu")?;
        let is_busy = |name: &&str| {
            let vcpu = format!("vcpu-0:{name}");
            let (run, ready) = (mean(&cpu, &vcpu, "%RUN")?, mean(&cpu, &vcpu, "%RDY")?);
            Some((run + ready - 100.0).abs() < 10.0 && run < 70.0 && ready > 30.0)
        };
        names.iter().all(|name| is_busy(name) == Some(true)).then_some(())
    });
    let tables = sampled(&[]);
    let cpu = &tables["cpu"];
    let times: BTreeSet<_> = cpu.iter().map(|row| row["TIME"].clone()).collect();
    assert_eq!(times.len(), 3);
    for row in cpu {
        assert_eq!(row["%CSTP"], "", "Linux has no such figure: {row:?}");
    }
    let first = cpu.iter().find(|row| row["NAME"] == "vcpu-0:top \"1\"").unwrap();
    assert_eq!(first["PCPU"], "0");
    let others = cpu.iter().filter(|row| row["NAME"].starts_with("vcpu-0:top"));
    let others: Vec<_> = others.map(|row| row["ELSE ON PCPU"].as_str()).collect();
    assert!(others.iter().any(|other| other.contains("top2 vCPU 0")), "{others:?}");
    let memory = tables["memory"].iter().find(|row| row["NAME"] == "top2").unwrap();
    assert!(memory["GRANT"].parse::<f64>().unwrap() > 1.0, "{memory:?}");
    assert!(tables["interrupt"].len() > 3 && tables["vm-disk"].len() >= 6);
    assert!(!tables.contains_key("network"), "no daemon, no ports");
}
