//! UP: the physical edge.

mod up1;
mod up10;
mod up11;
mod up12;
mod up13;
mod up14;
mod up15;
mod up16;
mod up17;
mod up18;
mod up19;
mod up2;
mod up3;
mod up4;
mod up5;
mod up6;
mod up7;
mod up8;
mod up9;

use super::Set;

pub(super) const SET: Set = Set {
    name: "UP",
    what: "uplinks, teaming, failover, network I/O control, cards and captures",
    rows: &[
        &up1::ROW,
        &up2::ROW,
        &up3::ROW,
        &up4::ROW,
        &up5::ROW,
        &up6::ROW,
        &up7::ROW,
        &up8::ROW,
        &up9::ROW,
        &up10::ROW,
        &up11::ROW,
        &up12::ROW,
        &up13::ROW,
        &up14::ROW,
        &up15::ROW,
        &up16::ROW,
        &up17::ROW,
        &up18::ROW,
        &up19::ROW,
    ],
};
