//! All pages that links lead to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Outcome;
use crate::driver::Browser;

/// Pages that are visited at most.
const MOST: usize = 100;
/// Pages of one kind that are visited: such as two of the pages of VMs.
const OF_A_KIND: usize = 2;

/// Visits the first page and what it leads to on the same server, and calls `visit` on each.
/// Returns the addresses, without the server.
pub(crate) fn each_page(
    browser: &Browser,
    server: &str,
    mut visit: impl FnMut(&str) -> Outcome<()>,
) -> Outcome<Vec<String>> {
    let mut waiting = vec!["/".to_owned()];
    let mut known: BTreeSet<String> = waiting.iter().cloned().collect();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut visited = Vec::new();
    while let Some(address) = waiting.pop() {
        if visited.len() == MOST {
            return Err(format!("there are more than {MOST} pages").into());
        }
        browser.go(&format!("{server}{address}"))?;
        visit(&address)?;
        let links = browser.look("return [...document.querySelectorAll('a[href]')].map((a) => a.href);")?;
        visited.push(address);
        for link in links.as_array().into_iter().flatten().filter_map(Value::as_str) {
            let Some(link) = link.strip_prefix(server) else { continue };
            let link = link.split('#').next().unwrap_or_default().to_owned();
            if !link.is_empty() && known.insert(link.clone()) {
                let seen = kinds.entry(kind(&link)).or_default();
                *seen += 1;
                if *seen <= OF_A_KIND {
                    waiting.push(link);
                }
            }
        }
    }
    Ok(visited)
}

/// Returns what addresses of one kind have in common: the first part of the path, and the names of
/// the query's fields.
fn kind(address: &str) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let parts = path.split('/').count();
    let fields: Vec<_> = query.split('&').map(|field| field.split('=').next().unwrap_or_default()).collect();
    format!("{} {parts} {}", path.split('/').nth(1).unwrap_or_default(), fields.join(" "))
}
