//! Guests with queue pairs, and what `taut bench vsock` finds between two of them.

use crate::figure::shown;
use crate::lab::{Lab, NEWEST, OLDEST};
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::Results;
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::{bench, start_daemon};

/// Kernels of the guests: the word in goals, and the image.
pub(super) const KERNELS: [(&str, &str); 2] = [("oldest", OLDEST), ("newest", NEWEST)];

/// Starts a daemon with guests a and b that run an image and have memory for queue pairs.
pub(super) fn start_pair(lab: &mut Lab, image: &str) -> Measured<()> {
    start_daemon(lab, "")?;
    for (name, ip) in [("a", "10.82.0.1"), ("b", "10.82.0.2")] {
        let boot = lab.boot_of(image)?;
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n");
        let vmci = "[vmci]\ndomains = [\"goals\"]\nqueue_pairs = \"64MiB\"\n";
        lab.start_vm(name, &format!("memory = \"256MiB\"\n{boot}{nic}{vmci}"))?;
    }
    // Linux makes the device of queue pairs while the guest already answers.
    let words = "bench vsock a b --against ring --message 64 --socket-size 64KiB --duration 0.1";
    lab.until("the guests have queue pairs", 60, |lab| {
        let answers = lab.taut(words).is_ok();
        lab.sleep(if answers { 0.0 } else { 0.3 })?;
        Ok(answers)
    })
}

/// Measures with guests of each kernel, one pair after the other. `start` starts the pair that runs
/// an image. A goal's ID is `ID-KERNEL-…`.
pub(super) fn with_each_kernel(
    lab: &mut Lab,
    results: &mut Results,
    goals: &[&str],
    start: impl Fn(&mut Lab, &str) -> Measured<()>,
    mut measure: impl FnMut(&mut Lab, &mut Results, &str) -> Measured<()>,
) -> Measured<()> {
    for (kernel, image) in KERNELS {
        let version = lab.kernel_of(image)?;
        lab.note(format!("{kernel}: Linux {version}"));
        let outcome = start(lab, image).and_then(|()| measure(lab, results, kernel));
        let of_kernel: Vec<&str> = goals.iter().copied().filter(|goal| goal.contains(kernel)).collect();
        results.settle(&of_kernel, outcome);
        lab.stop_daemon()?;
    }
    Ok(())
}

/// Numbers of TCP sessions of which the faster one counts.
pub(super) const ONE_AND_FIVE: &[u32] = &[1, 5];

/// One session by a transport, beside TCP.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneSession<'a> {
    /// First words of the goals' IDs, which are `ID-KERNEL-MESSAGE`.
    pub(super) id: &'a str,
    /// All of these goals.
    pub(super) goals: &'a [&'a str],
    pub(super) transport: &'static str,
    /// Numbers of TCP sessions, of which the fastest counts.
    pub(super) tcp_sessions: &'a [u32],
}

impl OneSession<'_> {
    /// Measures messages of 256 B, 4 KiB and 64 KiB with guests of each kernel.
    pub(super) fn measure(self, lab: &mut Lab, results: &mut Results) -> Measured<()> {
        with_each_kernel(lab, results, self.goals, start_pair, |lab, results, kernel| {
            let report = streams(lab, "256,4KiB,64KiB", self.tcp_sessions)?;
            for message in [256, 4096, 65536] {
                let own = Cell::of(self.transport, message);
                let tcp = best_tcp(&report, message, self.tcp_sessions, ANY_BUFFERS)?;
                let ratio = paired(&own.figures(&report, "mbit_s")?, &tcp)?;
                let detail = beside(&report, own, &tcp)?;
                results.record(&format!("{}-{kernel}-{message}", self.id), [ratio], detail);
            }
            Ok(())
        })
    }
}

/// TCP with buffers of the size that the row asks for.
pub(super) const SAME_BUFFERS: &[&str] = &["tcp"];
/// TCP also with the buffers of a program that asks for none, which Linux enlarges with the
/// traffic: up to 6 MiB, unless an administrator has changed that.
pub(super) const ANY_BUFFERS: &[&str] = &["tcp", "tcp-auto"];

/// Measures streams of these messages by vsock, queue pairs and TCP in alternation, from a to b.
pub(super) fn streams(lab: &mut Lab, messages: &str, sessions: &[u32]) -> Measured<Doc> {
    let (seconds, repeats) = lab.pick((3, 7), (1, 1));
    let sessions = sessions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let words = format!("a b --message {messages} --sessions {sessions} --socket-size 256KiB");
    bench(lab, &format!("{words} --against tcp,tcp-auto,ring --duration {seconds} --repeat {repeats}"))
}

/// Throughput of each repeat in Mbit/s by TCP, with the fastest of these numbers of sessions and
/// kinds of buffers.
pub(super) fn best_tcp(
    report: &Doc,
    message: u32,
    sessions: &[u32],
    buffers: &[&'static str],
) -> Measured<Vec<f64>> {
    let cells = buffers.iter().flat_map(|&transport| {
        sessions.iter().map(move |&sessions| Cell { sessions, ..Cell::of(transport, message) })
    });
    let all = cells.map(|cell| cell.figures(report, "mbit_s")).collect::<Measured<Vec<_>>>()?;
    let fastest = |best: Vec<f64>, other: Vec<f64>| {
        best.into_iter().zip(other).map(|(best, other)| best.max(other)).collect()
    };
    Ok(all.into_iter().reduce(fastest).unwrap_or_default())
}

/// Says what both transports moved.
pub(super) fn beside(report: &Doc, cell: Cell, tcp: &[f64]) -> Measured<String> {
    let own = cell.median(report, "mbit_s")?;
    Ok(format!("{} Mbit/s, TCP {}", shown(own), shown(crate::figure::median(tcp)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_best_tcp_of_each_repeat_counts_with_any_buffers() {
        let cell = |transport: &str, sessions: u32, rates: [f64; 2]| {
            let repeats = rates.map(|rate| json!({"mbit_s": rate}));
            json!({"transport": transport, "message": 64, "sessions": sessions, "repeats": repeats})
        };
        let cells = [
            cell("tcp", 1, [5.0, 4.0]),
            cell("tcp", 5, [3.0, 6.0]),
            cell("tcp-auto", 1, [7.0, 2.0]),
            cell("tcp-auto", 5, [1.0, 1.0]),
        ];
        let report = Doc::from(json!({ "cells": cells }));
        let best = |sessions, buffers| best_tcp(&report, 64, sessions, buffers);
        assert_eq!(best(ONE_AND_FIVE, SAME_BUFFERS), Ok(vec![5.0, 6.0]));
        assert_eq!(best(ONE_AND_FIVE, ANY_BUFFERS), Ok(vec![7.0, 6.0]));
        assert_eq!(best(&[1], ANY_BUFFERS), Ok(vec![7.0, 4.0]));
        // A missing kind of TCP is an error: the ratio would be better without it.
        let without = Doc::from(json!({ "cells": &cells[..2] }));
        assert!(best_tcp(&without, 64, &[1], ANY_BUFFERS).is_err());
    }
}
