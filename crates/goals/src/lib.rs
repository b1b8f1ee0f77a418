//! Measures goals. A [`row::Row`] declares what it measures, on what, beside which rivals and with
//! which bounds. [`run`] runs the rows of a set and prints a line for each goal:
//!
//! ```text
//! GOAL <id> <figure> [min–max, n] (<bound>) met|missed|not measured [quick]
//! ```
//!
//! A goal is met or missed only if every figure of it is a finite number that was measured by this
//! run. Everything else is [`reason::NotMeasured`], with the reason:
//!
//! - a program that fails, a result without the field, `null`, NaN, an infinite ratio;
//! - a rival that is not installed;
//! - a row that ends with an error, or without recording one of its goals.
//!
//! Rows reach the outside only through [`lab::Lab`], and that only through [`machine::Machine`].
//! Tests put another machine in its place and drive every row under faults.

pub mod figure;
pub mod lab;
pub mod machine;
pub mod reason;
pub mod rival;
pub mod rounds;
pub mod row;
pub mod run;
pub mod sets;

#[cfg(test)]
mod faults;
