//! Reading the audit files, and checking their chain.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};

use taut_api::audit::{AuditCheck, AuditEntry};

use super::log::Files;
use super::record::{Content, Record, digest};

/// Most bytes that are read of one file: twice as many as it has when it is rotated in time.
const MOST: u64 = 16 << 20;

/// Returns the newest entries, of one user or of all, oldest first.
pub(super) fn newest(files: &Files, count: usize, uid: Option<u32>) -> io::Result<Vec<AuditEntry>> {
    let mut outcomes = HashMap::new();
    let mut found = Vec::new();
    for (_, file) in files.open()?.into_iter().rev() {
        let text = read(file)?;
        for line in lines(&text).rev() {
            if found.len() >= count {
                found.reverse();
                return Ok(found);
            }
            // The check of the chain names lines that are no records.
            let Ok(record) = serde_json::from_slice::<Record>(line) else { continue };
            if let Content::Outcome { outcome } = record.content {
                outcomes.insert(record.seq, outcome);
                continue;
            }
            let entry = record.into_entry(|seq| outcomes.remove(&seq));
            found.extend(entry.filter(|entry| uid.is_none_or(|uid| entry.caller.uid == Some(uid))));
        }
    }
    found.reverse();
    Ok(found)
}

/// Checks that each record has the hash of the one before it.
pub(super) fn check(files: &Files) -> io::Result<AuditCheck> {
    let mut check = AuditCheck::default();
    let mut before: Option<String> = None;
    for (path, file) in files.open()? {
        let text = read(file)?;
        for (index, line) in lines(&text).enumerate() {
            let at = || format!("line {} of {}", index + 1, path.display());
            let fault = match serde_json::from_slice::<Record>(line) {
                Ok(record) => {
                    check.records += 1;
                    check.oldest.get_or_insert(record.seq);
                    check.newest = check.newest.max(Some(record.seq));
                    // The oldest record follows one that was deleted.
                    let follows = before.as_ref().is_none_or(|before| *before == record.prev);
                    (!follows).then(|| format!("{} does not follow the record before it", at()))
                }
                Err(_) => Some(format!("{} is no record", at())),
            };
            check.fault = check.fault.take().or(fault);
            before = Some(digest(line));
        }
    }
    check.hash = before.unwrap_or_default();
    Ok(check)
}

fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the complete lines of a file; the last one may be about to be written.
fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let whole = text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    text[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}
