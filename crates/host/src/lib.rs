//! The Linux host: what it is made of, how busy it is, how it is set, and taking settings back.
//!
//! Everything is read below a root path, so that captured trees of other machines can be read as well.

pub mod captured;
pub mod check;
mod list;
pub mod topology;
pub mod utilisation;
