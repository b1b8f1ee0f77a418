//! Measures statistics beside loads that this program knows.
//!
//! * `statistics rates SECONDS` sends frames at twelve rates from as many ports for so long, and
//!   compares them with averages over all of that time, and over each second; then it kills the
//!   fabric.
//! * `statistics ready SECONDS` has a VM of another program want one pCPU for two vCPUs, and
//!   watches for so long what `tautd` says of that and does about it.
//!
//! Each prints one line of JSON.

mod rates;
mod ready;

use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["rates", seconds] => rates::run(seconds.parse()?)?,
        ["ready", seconds] => ready::run(seconds.parse()?)?,
        _ => return Err("usage: statistics rates SECONDS | ready SECONDS".into()),
    };
    println!("{found}");
    Ok(())
}
