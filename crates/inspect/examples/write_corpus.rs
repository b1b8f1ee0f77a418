//! Writes the hostile images to a folder: `write_corpus FOLDER`. Prints a line of JSON for each:
//! its file, its format, the attack, and the reason for which it has to be refused.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use serde_json::json;
use taut_inspect::corpus::hostile;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: write_corpus FOLDER")?);
    for (number, case) in hostile().into_iter().enumerate() {
        let file = folder.join(format!("{number}.img"));
        fs::write(&file, &case.image)?;
        let line = json!({
            "file": file,
            "format": case.format.name(),
            "name": case.name,
            "refusal": case.refusal.message(),
        });
        println!("{line}");
    }
    Ok(())
}
