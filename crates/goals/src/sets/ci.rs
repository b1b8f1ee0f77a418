//! `.ci/run` on a clean clone, which rows of two sets measure.

use crate::lab::{Lab, Tests};
use crate::reason::Measured;

pub(super) fn run(lab: &mut Lab) -> Measured<Tests> {
    lab.takes_a_full_run(".ci/run runs by itself")?;
    let clone = lab.clone_checkout()?;
    let command = lab.in_checkout(clone.join(".ci/run")).folder(&clone).record("ci");
    lab.tests(&command.without_env("CARGO_TARGET_DIR").without_env("TAUT_BIN").without_env("TAUT_IMAGES"))
}
