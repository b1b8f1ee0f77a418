//! UP11: virtual functions of a card are made, handed to VMs and given back.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP11",
    what: "virtual functions (SR-IOV): made by `taut pnic`, handed to a VM, whose frames pass the card's cable in both \
           directions, given back; after kill -9, too; drivers, files and interfaces are as before, and as many interrupts",
    on: "an emulated 82576 behind an emulated IOMMU in a nested host; an e1000e at the other end of its cable reaches the \
         VM's Linux while a daemon runs, after its kill -9, and with the next one",
    goals: &[Goal::new("UP11", &[Bound::Exactly(2.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test(
        "-p taut-tests --test guest -- nested::virtual_functions_of_an_emulated_card \
         nested::frames_of_a_virtual_function",
    )?;
    results.record("UP11", [tests.passed], "none failed or skipped");
    Ok(())
}
