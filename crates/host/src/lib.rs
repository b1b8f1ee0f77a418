//! The Linux host: what it is made of, and how busy it is.
//!
//! Everything is read below a root path, so that captured trees of other machines can be read as well.

mod list;
pub mod topology;
pub mod utilisation;
