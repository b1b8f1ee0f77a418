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
        let vmci = "[vmci]\ndomains = [\"goals\"]\nqueue_pairs = \"16MiB\"\n";
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
                let tcp = best_tcp(&report, message, self.tcp_sessions)?;
                let ratio = paired(&own.figures(&report, "mbit_s")?, &tcp)?;
                let detail = beside(&report, own, &tcp)?;
                results.record(&format!("{}-{kernel}-{message}", self.id), [ratio], detail);
            }
            Ok(())
        })
    }
}

/// Measures streams of these messages by vsock, queue pairs and TCP in alternation, from a to b.
pub(super) fn streams(lab: &mut Lab, messages: &str, sessions: &[u32]) -> Measured<Doc> {
    let (seconds, repeats) = lab.pick((3, 7), (1, 1));
    let sessions = sessions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let words = format!("a b --message {messages} --sessions {sessions} --socket-size 256KiB");
    bench(lab, &format!("{words} --against tcp,ring --duration {seconds} --repeat {repeats}"))
}

/// Throughput of each repeat in Mbit/s by TCP, with the fastest of these numbers of sessions.
pub(super) fn best_tcp(report: &Doc, message: u32, sessions: &[u32]) -> Measured<Vec<f64>> {
    let of = |&sessions: &u32| Cell { sessions, ..Cell::of("tcp", message) }.figures(report, "mbit_s");
    let all = sessions.iter().map(of).collect::<Measured<Vec<_>>>()?;
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
