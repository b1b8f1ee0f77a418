//! The Linux host: what it is made of.
//!
//! Everything is read below a root path, so that captured trees of other machines can be read as well.

mod list;
pub mod topology;
