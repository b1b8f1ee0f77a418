//! What the results say about the machine.

use serde_json::{Value, json};

use crate::lab::Lab;
use crate::machine::Text;

/// Describes the machine, as `taut_bench::report::SwitchResults` reads it.
pub(super) fn describe(lab: &mut Lab) -> Value {
    let mut say = |program: &str, words: &[&str]| {
        let command = lab.in_checkout(program).args(words);
        lab.run(&command).map_or_else(|_| Text::from("unknown"), |ended| ended.stdout)
    };
    let ovs = say("ovs-vsctl", &["--version"]);
    let ovs = ovs.between("(Open vSwitch) ", "").unwrap_or_else(|_| "unknown".to_owned());
    let dpdk = say("dpkg-query", &["-W", "-f", "${Version}", "dpdk"]).trimmed().to_owned();
    let kernel = say("uname", &["-r"]).trimmed().to_owned();
    let taut = say("git", &["describe", "--always", "--dirty"]).trimmed().to_owned();
    let date = say("date", &["-u", "+%F"]).trimmed().to_owned();
    let mut read = |path: &str| lab.read(path).unwrap_or_else(|_| Text::from(""));
    let os = read("/etc/os-release").between("PRETTY_NAME=\"", "\"").unwrap_or_else(|_| "unknown".to_owned());
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo.between("model name\t: ", "").unwrap_or_else(|_| "unknown".to_owned());
    let is_virtual = cpuinfo.contains(" hypervisor");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let note = lab.machine().variable("NOTE").unwrap_or_default();
    json!({
        "cpu": cpu, "cpus": cpus, "virtual": is_virtual, "os": os, "kernel": kernel, "taut": taut, "ovs": ovs,
        "dpdk": dpdk, "date": date, "note": note
    })
}

/// Name of the file of results: date and processor, such as `2026-01-02-amd-epyc`.
pub(super) fn file_name(machine: &Value) -> String {
    let text = |field: &str| machine[field].as_str().unwrap_or("unknown").to_lowercase();
    let name = format!("{}-{}", text("date"), text("cpu"));
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_date_and_processor() {
        let machine = json!({"date": "2026-11-22", "cpu": "Intel(R) Xeon(R) Processor"});
        assert_eq!(file_name(&machine), "2026-11-22-intel-r-xeon-r-processor");
    }
}
