//! Makes the page on performance from files of results, the newest first: `cargo run -p taut-bench
//! --example switch_report -- PAGE.md PICTURE.svg RESULTS.json [EARLIER.json…]`. Earlier results
//! show a state of the cores that the newest did not see.

use std::path::PathBuf;

use anyhow::{Context, Result};
use taut_bench::report::SwitchResults;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [page, picture, newest, earlier @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: switch_report PAGE.md PICTURE.svg RESULTS.json [EARLIER.json…]");
    };
    let results = read(newest)?;
    let earlier = earlier.iter().map(read).collect::<Result<Vec<_>>>()?;
    let name = picture.file_name().context("the picture has no name")?.to_string_lossy();
    std::fs::write(page, results.markdown(&name, &earlier))
        .with_context(|| format!("cannot write {}", page.display()))?;
    std::fs::write(picture, results.svg()?).with_context(|| format!("cannot write {}", picture.display()))
}

fn read(path: &PathBuf) -> Result<SwitchResults> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not such a file", path.display()))
}
