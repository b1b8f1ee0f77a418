//! A report as text.

use std::fmt;

use taut_api::check::Change;
use taut_api::word::counted;

use super::line::{Line, Report, Verdict};

/// Maximum width of a cell, in characters. A longer value is printed whole below the table.
const WIDEST: usize = 52;

impl fmt::Display for Report {
    /// Prints a table, then the reasons for the lines that are not as wanted, then the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["VERDICT", "ITEM", "FOUND", "WANTED", "TAKES EFFECT"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(header).chain(self.lines.iter().map(cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        for row in &rows {
            let padded: Vec<_> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", padded.join("  ").trim_end())?;
        }
        for line in self.lines.iter().filter(|line| matches!(line.verdict, Verdict::Warn | Verdict::Bad)) {
            writeln!(f, "\n{}: {}, {}", line.verdict.word(), line.id, line.what)?;
            if line.found.chars().count() > WIDEST || line.wanted.chars().count() > WIDEST {
                writeln!(f, "  found   {}\n  wanted  {}", line.found, line.wanted)?;
            }
            writeln!(f, "  why     {}\n  effect  {}", line.why, line.effect)?;
        }
        let Self { subject, profile, profile_because, summary, .. } = self;
        let changes = self.changes();
        let (files, cards): (Vec<_>, Vec<_>) =
            changes.iter().partition(|change| matches!(change, Change::File { .. }));
        let live = [counted_or_none(files.len(), "file"), counted_or_none(cards.len(), "network card")];
        let live: Vec<_> = live.into_iter().flatten().collect();
        write!(
            f,
            "\n{subject} for {profile}: {} ok, {} warn, {} bad, {} unknown",
            summary.ok, summary.warn, summary.bad, summary.unknown
        )?;
        if let Some(reason) = profile_because {
            write!(f, "\nprofile {profile}, because {reason}; --profile checks for another one")?;
        }
        if !live.is_empty() {
            write!(f, "; --apply changes {}", live.join(" and "))?;
        }
        writeln!(f)
    }
}

/// Returns a number with its noun; none for 0.
fn counted_or_none(count: usize, noun: &str) -> Option<String> {
    (count > 0).then(|| counted(count, noun))
}

fn cells(line: &Line) -> [String; 5] {
    let cut = |text: &str| {
        if text.chars().count() <= WIDEST {
            return text.to_owned();
        }
        text.chars().take(WIDEST - 1).chain(['…']).collect()
    };
    [
        line.verdict.word().to_owned(),
        line.id.to_owned(),
        cut(&line.found),
        cut(&line.wanted),
        line.takes_effect.word().to_owned(),
    ]
}
