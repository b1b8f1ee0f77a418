//! QP13: throughput by message size, one session and five, through queue pairs, plain vsock and TCP
//! between stock guests, drawn as S2 does.

use super::guests::{ONE_AND_FIVE, best_tcp, start_pair, with_each_kernel};
use crate::figure::{Bound, percentile, ratio};
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::bench;

const BOUNDS: &[Bound] = &[
    Bound::AtLeast(3.5, "x TCP at the worst point from 4 to 64 KiB"),
    Bound::Stated("x TCP at the best point"),
    Bound::Stated("Mbit/s at best"),
];

pub(super) const ROW: Row = Row {
    id: "QP13",
    what: "throughput by message size, one session and five, through queue pairs, plain vsock and TCP",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest; sockets of 256 KiB",
    goals: &[Goal::new("QP13-client-oldest", BOUNDS), Goal::new("QP13-client-newest", BOUNDS)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    with_each_kernel(lab, results, &ROW.goals_with("QP13-"), start_pair, |lab, results, kernel| {
        let (seconds, repeats) = lab.pick((2.0, 3), (0.5, 1));
        let goal = format!("QP13-client-{kernel}");
        let drawing = lab.fresh(&format!("{goal}.svg"))?;
        let sizes = [64, 256, 1024, 4096, 16384, 65536];
        let messages = sizes.map(|size: u32| size.to_string()).join(",");
        let words = format!("a b --message {messages} --sessions 1,5 --socket-size 256KiB");
        let words = format!("{words} --against tcp,ring --duration {seconds} --repeat {repeats}");
        let report = bench(lab, &format!("{words} --svg {}", drawing.display()))?;
        lab.written(&drawing)?;
        let (mut points, mut rates) = (Vec::new(), Vec::new());
        for message in sizes {
            let tcp = crate::figure::median(&best_tcp(&report, message, ONE_AND_FIVE)?)?;
            for sessions in [1, 5] {
                let rate = Cell { sessions, ..Cell::of("ring", message) }.median(&report, "mbit_s")?;
                points.push((message, ratio(rate, tcp)?));
                rates.push(rate);
            }
        }
        let of_pages: Vec<f64> = points.iter().filter(|point| point.0 >= 4096).map(|point| point.1).collect();
        let of_all: Vec<f64> = points.iter().map(|point| point.1).collect();
        let values = [percentile(&of_pages, 0.0)?, percentile(&of_all, 100.0)?, percentile(&rates, 100.0)?];
        let listed: Vec<String> =
            points.chunks(2).map(|of| format!("{} B {:.1} and {:.1}", of[0].0, of[0].1, of[1].1)).collect();
        results.record(&goal, values, format!("one session and five: {}; {goal}.svg", listed.join(", ")));
        Ok(())
    })
}
