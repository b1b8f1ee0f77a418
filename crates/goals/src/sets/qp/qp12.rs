//! QP12: messages between programs in two VMs keep their boundaries, and none is lost.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Text;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "QP12",
    what: "SOCK_SEQPACKET: a million messages in each direction, each compared with what was sent; late readers, buffers \
           of 8 KiB to 1 MiB, messages as long as the buffer; what is not offered is refused at once. As many datagrams \
           between programs with the preload library",
    on: "QEMU guests with Debian's kernels 6.1 and 6.12, and the newest of its backports",
    goals: &[
        Goal::new(
            "QP12-seqpacket",
            &[
                Bound::Exactly(0.0, "messages lost or changed"),
                Bound::AtLeast(2.0, "pairs of kernels"),
                Bound::Stated("messages each way"),
                Bound::Stated("a second"),
            ],
        ),
        Goal::new(
            "QP12-datagrams",
            &[
                Bound::Exactly(0.0, "datagrams lost or changed"),
                Bound::Stated("datagrams each way"),
                Bound::Stated("a second"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let messages: u32 = lab.pick(1_000_000, 20_000);
    let outcome = seqpacket(lab, results, messages);
    results.settle(&["QP12-seqpacket"], outcome);
    datagrams(lab, results, messages)
}

/// Runs a test with guests in which an example runs, and returns what it prints.
fn test(lab: &mut Lab, name: &str, variable: &str, messages: u32) -> Measured<Text> {
    let words = format!("test -p taut-tests --test guest -- --nocapture --test-threads=1 {name}::");
    let command = lab.in_checkout("cargo").args(words).env(variable, messages.to_string());
    lab.tests(&command.record(name)).map(|tests| tests.text)
}

fn seqpacket(lab: &mut Lab, results: &mut Results, messages: u32) -> Measured<()> {
    lab.example("taut-bench", "seqpacket")?;
    let text = test(lab, "seqpacket", "TAUT_SEQPACKET_MESSAGES", messages)?;
    let whole = text.number_between("client: seqpacket: all lengths: ", " messages")?;
    let ms = text.number_between(" bytes, ", " ms.")?;
    let pairs = text.all_between("seqpacket: all was as ", "planned").len() as f64;
    let detail = format!("lengths of 1 B to 64 KiB, {} s", shown(ms / 1000.0));
    let lost = f64::from(messages) - whole;
    results.record("QP12-seqpacket", [lost, pairs, whole, whole * 1000.0 / ms.max(1.0)], detail);
    Ok(())
}

fn datagrams(lab: &mut Lab, results: &mut Results, messages: u32) -> Measured<()> {
    lab.example("taut-preload", "datagrams")?;
    let text = test(lab, "datagrams", "TAUT_DATAGRAMS", messages)?;
    let back = text.number_between("datagrams: ", " came back as they were")?;
    let ms = text.number_between("bytes each way, ", " ms.")?;
    let detail = format!("sent back and compared, 8 B to 64 KiB, {} s", shown(ms / 1000.0));
    results.record("QP12-datagrams", [f64::from(messages) - back, back, back * 1000.0 / ms.max(1.0)], detail);
    Ok(())
}
