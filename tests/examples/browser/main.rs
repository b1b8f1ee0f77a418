//! Looks at the page of `tautd` in Chromium, which `chromedriver` controls.
//!
//! * `browser shaping FOLDER` changes the shaping of a card by the keyboard alone and measures how
//!   long its rate takes to follow. Pictures of the page, light and dark, are saved in the folder.
//! * `browser pages` visits all pages, with and without script, at five widths, and looks for
//!   controls without a name, messages in the console, violations of the policy and parts that are
//!   cut off. Without script it sends a form, too.
//!
//! Each prints one line of JSON.

mod crawl;
mod driver;
mod host;
mod pages;
mod shaping;

use std::error::Error;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["shaping", folder] => shaping::run(Path::new(folder))?,
        ["pages"] => pages::run()?,
        _ => return Err("usage: browser shaping FOLDER | pages".into()),
    };
    println!("{found}");
    Ok(())
}
