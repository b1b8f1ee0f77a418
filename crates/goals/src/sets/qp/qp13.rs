//! QP13: throughput by message size, one session and five, through queue pairs, plain vsock and TCP
//! between stock guests, drawn as S2 does.

use super::guests::{ONE_AND_FIVE, SAME_BUFFERS, best_tcp, start_pair, with_each_kernel};
use crate::figure::{Bound, Value, percentile};
use crate::lab::Lab;
use crate::reason::{Measured, NotMeasured};
use crate::rounds::paired;
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
            let tcp = best_tcp(&report, message, ONE_AND_FIVE, SAME_BUFFERS)?;
            for sessions in [1, 5] {
                let cell = Cell { sessions, ..Cell::of("ring", message) };
                points.push((message, paired(&cell.figures(&report, "mbit_s")?, &tcp)?));
                rates.push(cell.median(&report, "mbit_s")?);
            }
        }
        let (worst, best) = worst_and_best(&points)?;
        let values = [worst, best, percentile(&rates, 100.0)?.into()];
        let listed: Vec<String> = points
            .chunks(2)
            .map(|of| format!("{} B {:.1} and {:.1}", of[0].0, of[0].1.value, of[1].1.value))
            .collect();
        results.record(&goal, values, format!("one session and five: {}; {goal}.svg", listed.join(", ")));
        Ok(())
    })
}

/// Returns the ratio of the worst point from 4 to 64 KiB, and that of the best point of all, with
/// the spread of their repeats.
fn worst_and_best(points: &[(u32, Value)]) -> Measured<(Value, Value)> {
    let by_ratio = |a: &&Value, b: &&Value| a.value.total_cmp(&b.value);
    let of_pages = points.iter().filter(|point| point.0 >= 4096).map(|point| &point.1);
    let worst = of_pages.min_by(by_ratio);
    let best = points.iter().map(|point| &point.1).max_by(by_ratio);
    let both = worst.cloned().zip(best.cloned());
    both.ok_or_else(|| NotMeasured::because("no point was measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_ratios_of_paired_repeats() {
        // The machine became slower all the time: the ratio of the medians would be 3.
        let ratio = paired(&[8.0, 6.0, 1.0], &[2.0, 1.5, 2.0]).unwrap();
        let points = [(256, 2.0.into()), (4096, ratio.clone()), (65536, 9.0.into())];
        let (worst, best) = worst_and_best(&points).unwrap();
        assert!((worst.value - 4.0).abs() < 1e-9 && (best.value - 9.0).abs() < 1e-9, "{worst:?} {best:?}");
        assert_eq!(worst.spread.unwrap().count, 3);
        assert!(worst_and_best(&points[..1]).is_err());
    }
}
