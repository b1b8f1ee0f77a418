//! Puts a history through what a host does to it within a month.
//!
//! * `endure month FOLDER SUBJECTS DAYS` records so many subjects whose counters all grow, for so
//!   many days of a clock of its own, and measures the file.
//! * `endure kills FOLDER TIMES` kills a process that records so many times, and measures what is
//!   missing each time.
//! * `endure full FOLDER` fills the file system of a folder while it records, and frees it again.
//!
//! Each prints one line of JSON.

mod full;
mod kills;
mod load;
mod month;

use std::error::Error;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["month", folder, subjects, days] => month::run(Path::new(folder), subjects.parse()?, days.parse()?)?,
        ["kills", folder, times] => kills::run(Path::new(folder), times.parse()?)?,
        ["record", file, second] => return kills::record(Path::new(file), second.parse()?),
        ["full", folder] => full::run(Path::new(folder))?,
        _ => return Err("usage: endure month FOLDER SUBJECTS DAYS | kills FOLDER TIMES | full FOLDER".into()),
    };
    println!("{found}");
    Ok(())
}
