//! Tables as CSV (RFC 4180) with all columns. Fields are in the order of [`View::columns`], behind
//! the time in seconds since the Unix epoch and the name of the view.

use crate::rates::Rates;
use crate::table::{self, Cell, Row};
use crate::view::{Column, Form, View};

/// Returns the header line of a view.
pub fn header(view: View) -> String {
    let titles = view.columns().iter().map(|column| column.title);
    line(["TIME", "VIEW"].into_iter().chain(titles).map(field))
}

/// Returns a line for each row of a view, parts of rows included.
pub fn lines(view: View, rates: &Rates) -> String {
    let rows = table::rows(view, rates).into_iter().flat_map(|mut row| {
        let below = std::mem::take(&mut row.below);
        [row].into_iter().chain(below)
    });
    rows.map(|row| row_line(view, rates.epoch_ms, &row)).collect()
}

fn row_line(view: View, epoch_ms: u64, row: &Row) -> String {
    let time = format!("{}.{:03}", epoch_ms / 1000, epoch_ms % 1000);
    let cells = view.columns().iter().zip(&row.cells).map(|(column, cell)| cell_field(column, cell));
    line([time, field(view.word())].into_iter().chain(cells))
}

/// Returns a cell; nothing if there is no figure.
fn cell_field(column: &Column, cell: &Cell) -> String {
    match cell {
        Cell::Absent => String::new(),
        Cell::Text(text) => field(text),
        Cell::Number { value, .. } => match column.form {
            Form::Number(decimals) => format!("{value:.decimals$}"),
            Form::Text(_) => value.to_string(),
        },
    }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.collect::<Vec<_>>().join(",") + "\n"
}

/// Quotes a field if it needs that.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text != text.trim() {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rates;

    #[test]
    fn names_are_quoted_and_absent_figures_are_empty() {
        assert_eq!([field("a"), field("a,b"), field("say \"hi\"")], ["a", "\"a,b\"", "\"say \"\"hi\"\"\""]);
        let rates = test_rates::rates();
        let all: String = View::ALL.map(|view| header(view) + &lines(view, &rates)).concat();
        insta::assert_snapshot!(all);
    }
}
