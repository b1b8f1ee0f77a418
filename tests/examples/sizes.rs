//! Prints sizes and duplicates of the crates below a folder: `sizes FOLDER`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// Lines that have to agree in a row to count as a duplicate.
const WINDOW: usize = 8;

/// Functions and structs of one file.
#[derive(Default)]
struct Items {
    functions: Vec<(usize, String)>,
    structs: Vec<(usize, String)>,
}

impl<'a> Visit<'a> for Items {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.functions.push((lines(&item.block), item.sig.ident.to_string()));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.functions.push((lines(&item.block), item.sig.ident.to_string()));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.structs.push((item.fields.len(), item.ident.to_string()));
    }
}

fn lines(block: &syn::Block) -> usize {
    let span = block.span();
    span.end().line - span.start().line + 1
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Median and 90th percentile.
fn percentiles(mut values: Vec<usize>) -> (usize, usize) {
    values.sort_unstable();
    (values[values.len() / 2], values[values.len() * 9 / 10])
}

/// Number of lines that belong to a run of [`WINDOW`] lines or more that stands in several places.
fn duplicated(texts: &[String]) -> usize {
    let kept: Vec<Vec<&str>> = texts
        .iter()
        .map(|text| {
            text.lines().map(str::trim).filter(|line| line.len() > 3 && !line.starts_with("//")).collect()
        })
        .collect();
    let mut places: BTreeMap<&[&str], usize> = BTreeMap::new();
    for window in kept.iter().flat_map(|lines| lines.windows(WINDOW)) {
        *places.entry(window).or_default() += 1;
    }
    let mut count = 0;
    for lines in &kept {
        let mut marked = vec![false; lines.len()];
        for (at, window) in lines.windows(WINDOW).enumerate() {
            if places[window] > 1 {
                marked[at..at + WINDOW].fill(true);
            }
        }
        count += marked.into_iter().filter(|marked| *marked).count();
    }
    count
}

fn main() {
    let root = PathBuf::from(std::env::args().nth(1).expect("sizes FOLDER"));
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    files.retain(|path| path.strip_prefix(&root).unwrap().iter().any(|part| part == "src"));
    let texts: Vec<String> = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let counts: Vec<usize> = texts.iter().map(|text| text.lines().count()).collect();
    let mut all = Items::default();
    for text in &texts {
        all.visit_file(&syn::parse_file(text).unwrap());
    }
    let folders: std::collections::BTreeSet<_> = files.iter().filter_map(|path| path.parent()).collect();
    let (median, p90) = percentiles(counts.clone());
    let over = counts.iter().filter(|count| **count > 600).count();
    println!(
        "files: {} in {} folders, {} lines; median {median}, p90 {p90}, longest {}, {over} over 600",
        files.len(),
        folders.len(),
        counts.iter().sum::<usize>(),
        counts.iter().max().unwrap(),
    );
    let (median, p90) = percentiles(all.functions.iter().map(|function| function.0).collect());
    all.functions.sort();
    let longest: Vec<_> =
        all.functions.iter().rev().take(6).map(|(lines, name)| format!("{name} {lines}")).collect();
    println!(
        "functions: {}; median {median}, p90 {p90}; longest: {}",
        all.functions.len(),
        longest.join(", ")
    );
    let mut wide: Vec<_> = all.structs.iter().filter(|(fields, _)| *fields > 12).collect();
    wide.sort();
    let names: Vec<_> = wide.iter().rev().map(|(fields, name)| format!("{name} {fields}")).collect();
    println!("structs: {}, of more than 12 fields {}: {}", all.structs.len(), wide.len(), names.join(", "));
    println!("duplicates: {} lines in equal runs of {WINDOW} or more", duplicated(&texts));
}
