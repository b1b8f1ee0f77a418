//! UP11: virtual functions of a card are made, handed to VMs and given back.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP11",
    what: "virtual functions (SR-IOV): made by `taut pnic`, handed to a VM, given back; after kill -9, too; drivers, files \
           and interfaces are as before, and as many interrupts",
    on: "an emulated 82576 behind an emulated IOMMU in a nested host; the VM stays in its firmware, so no frame of a \
         virtual function is seen",
    goals: &[Goal::new("UP11", &[Bound::Exactly(1.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests =
        lab.cargo_test("-p taut-tests --test guest -- nested::virtual_functions_of_an_emulated_card")?;
    results.record("UP11", [tests.passed], "none failed or skipped");
    Ok(())
}
