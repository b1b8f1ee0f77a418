//! VC-G: VMCI sockets. Microguests and Debian guests, beside vhost-device-vsock and TCP.

pub(super) mod cells;
pub(super) mod guests;
pub(super) mod rival;
mod vcg1;
mod vcg10;
mod vcg11;
mod vcg2;
mod vcg3;
mod vcg4;
mod vcg5;
mod vcg6;
mod vcg7;
mod vcg8;
mod vcg9;

use super::Set;

pub(super) const SET: Set = Set {
    name: "VC-G",
    what: "VMCI sockets",
    rows: &[
        &vcg1::ROW,
        &vcg2::ROW,
        &vcg3::ROW,
        &vcg4::ROW,
        &vcg5::ROW,
        &vcg6::ROW,
        &vcg7::ROW,
        &vcg8::ROW,
        &vcg9::ROW,
        &vcg10::ROW,
        &vcg11::ROW,
    ],
};
