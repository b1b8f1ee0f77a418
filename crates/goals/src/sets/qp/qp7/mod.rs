//! QP7: socket semantics of programs with the preload library and queue pairs, beside real TCP.
//!
//! What may differ is in `docs/guide/vmci.md`. `crates/preload/examples/tcp_program/model/mod.rs`
//! says what is compared, and what is not done for that reason.

mod bytes;
mod leaving;
mod model;
mod stage;

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Share of the ends that have to be attached, so that the model test is one of queue pairs. The
/// other ones close or end before their first data call: 3 % of them on one machine.
const MOST: f64 = 0.8;

pub(super) const ROW: Row = Row {
    id: "QP7",
    what: "socket semantics by queue pairs beside TCP: the scenarios of a TCP program, a model test of random \
           operations, senders that leave their queue pair, and bytes compared (short: 10,000 operations instead of \
           a million, 1 GiB instead of 100)",
    on: "programs with the library on this host, and in two QEMU guests with Debian's newest kernel",
    goals: &[
        Goal::new(
            "QP7-program",
            &[Bound::Exactly(0.0, "scenarios that differ"), Bound::AtLeast(80.0, "scenarios")],
        ),
        Goal::new(
            "QP7-model",
            &[
                Bound::Exactly(0.0, "differences"),
                Bound::AtLeast(1.0, "of the operations wanted"),
                Bound::Above(0.0, "ends that left their queue pair"),
                Bound::AtLeast(MOST, "of the ends had queue pairs"),
                Bound::Stated("connections"),
            ],
        ),
        Goal::new(
            "QP7-model-guests",
            &[
                Bound::Exactly(0.0, "differences"),
                Bound::AtLeast(1.0, "of the operations wanted"),
                Bound::Exactly(0.0, "scenarios that differ"),
                Bound::AtLeast(17.0, "scenarios"),
                Bound::Above(0.0, "ends that left their queue pair"),
                Bound::AtLeast(MOST, "of the client's ends had queue pairs"),
            ],
        ),
        Goal::new(
            "QP7-leaving",
            &[
                Bound::Exactly(0.0, "transfers that are not byte-exact"),
                Bound::Exactly(0.0, "ends that go another way afterwards"),
                Bound::AtLeast(33.0, "transfers"),
            ],
        ),
        Goal::new(
            "QP7-bytes",
            &[
                Bound::Exactly(0.0, "transfers that are not byte-exact"),
                Bound::AtLeast(1.0, "of the bytes wanted, by rings of both"),
                Bound::Stated("Mbit/s"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = model::on_this_host(lab, results);
    results.settle(&["QP7-program", "QP7-model"], outcome);
    stage::start(lab)?;
    let outcome = model::in_guests(lab, results);
    results.settle(&["QP7-model-guests"], outcome);
    let outcome = leaving::measure(lab, results);
    results.settle(&["QP7-leaving"], outcome);
    bytes::measure(lab, results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Verdict, judge};

    #[test]
    fn one_attached_connection_does_not_meet_the_goals_of_the_model() {
        let judged = |id: &str, figures: &[f64]| {
            let goal = ROW.goals.iter().find(|goal| goal.id == id).unwrap();
            judge(goal.bounds, &figures.iter().map(|figure| (*figure).into()).collect::<Vec<_>>())
        };
        for (share, verdict) in [(1.0 / 140.0, Verdict::Missed), (0.9, Verdict::Met)] {
            assert_eq!(judged("QP7-model", &[0.0, 1.0, 9.0, share, 140.0]), verdict);
            assert_eq!(judged("QP7-model-guests", &[0.0, 1.0, 0.0, 17.0, 9.0, share]), verdict);
        }
    }
}
