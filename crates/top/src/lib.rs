//! `taut top`: views of a host and its VMs that refresh themselves, with the columns and the keys
//! of esxtop.
//!
//! A figure goes one way through the files: [`reading`] takes the counters that a [`view`] needs at
//! one time; [`rates`] is the difference of two readings; [`table`] has a table of cells for each
//! [`view`]; [`screen`] draws one, and [`csv`] writes it as text. [`keys`] changes the
//! [`settings`], which [`toprc`] saves. Only [`reading`], [`toprc`] and [`run`] reach the outside.
//!
//! A figure that Linux does not have is absent. So is the rate of a counter that went back, and of
//! whatever is not in both readings.

pub mod csv;
pub mod keys;
pub mod rates;
pub mod reading;
pub mod run;
pub mod screen;
pub mod settings;
pub mod table;
pub mod toprc;
pub mod view;

#[cfg(test)]
mod test_rates;
