//! Guests with queue pairs, and what `taut bench vsock` finds between two of them.

use crate::figure::shown;
use crate::lab::{Lab, NEWEST, OLDEST};
use crate::machine::Doc;
use crate::reason::Measured;
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

/// Measures with guests of each kernel, one pair after the other. A goal's ID is `ID-KERNEL-…`.
pub(super) fn with_each_kernel(
    lab: &mut Lab,
    results: &mut Results,
    goals: &[&str],
    mut measure: impl FnMut(&mut Lab, &mut Results, &str) -> Measured<()>,
) -> Measured<()> {
    for (kernel, image) in KERNELS {
        let version = lab.kernel_of(image)?;
        lab.note(format!("{kernel}: Linux {version}"));
        let outcome = start_pair(lab, image).and_then(|()| measure(lab, results, kernel));
        let of_kernel: Vec<&str> = goals.iter().copied().filter(|goal| goal.contains(kernel)).collect();
        results.settle(&of_kernel, outcome);
        lab.stop_daemon()?;
    }
    Ok(())
}

/// Measures streams of these messages by vsock, queue pairs and TCP in alternation, from a to b.
pub(super) fn streams(lab: &mut Lab, messages: &str, sessions: &str) -> Measured<Doc> {
    let (seconds, repeats) = lab.pick((3, 7), (1, 1));
    let words = format!("a b --message {messages} --sessions {sessions} --socket-size 256KiB");
    bench(lab, &format!("{words} --against tcp,ring --duration {seconds} --repeat {repeats}"))
}

/// Throughput of each repeat in Mbit/s: TCP with one session or five, whichever was faster.
pub(super) fn best_tcp(report: &Doc, message: u32) -> Measured<Vec<f64>> {
    let of = |sessions| Cell { sessions, ..Cell::of("tcp", message) }.figures(report, "mbit_s");
    Ok(of(1)?.into_iter().zip(of(5)?).map(|(one, five)| one.max(five)).collect())
}

/// Says what both transports moved.
pub(super) fn beside(report: &Doc, cell: Cell, tcp: &[f64]) -> Measured<String> {
    let own = cell.median(report, "mbit_s")?;
    Ok(format!("{} Mbit/s, TCP {}", shown(own), shown(crate::figure::median(tcp)?)))
}
