//! Makes the page on performance from a file of results: `cargo run -p taut-bench --example
//! switch_report -- RESULTS.json PAGE.md PICTURE.svg`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use taut_bench::report::SwitchResults;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [results, page, picture] = arguments.as_slice() else {
        anyhow::bail!("usage: switch_report RESULTS.json PAGE.md PICTURE.svg");
    };
    let text = std::fs::read(results).with_context(|| format!("cannot read {}", results.display()))?;
    let parsed: SwitchResults =
        serde_json::from_slice(&text).with_context(|| format!("{} is not such a file", results.display()))?;
    let name = picture.file_name().context("the picture has no name")?.to_string_lossy();
    std::fs::write(page, parsed.markdown(&name))
        .with_context(|| format!("cannot write {}", page.display()))?;
    std::fs::write(picture, parsed.svg()?).with_context(|| format!("cannot write {}", picture.display()))
}
