//! Printing: aligned tables for people, JSON for programs.

use clap::ValueEnum;
use serde::Serialize;

/// How to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned text.
    #[default]
    Table,
    /// The API's own documents.
    Json,
}

/// Prints `value` as JSON, or what `table` makes of it.
pub(crate) fn print<T: Serialize>(format: Format, value: &T, table: impl FnOnce(&T) -> String) {
    match format {
        Format::Table => print!("{}", table(value)),
        Format::Json => println!("{}", serde_json::to_string_pretty(value).expect("API types are JSON")),
    }
}

/// Columns under a header, each as wide as its widest cell. Numbers are aligned to the right.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let numeric: [bool; N] = std::array::from_fn(|column| {
        !rows.is_empty()
            && rows.iter().all(|row| row[column].chars().all(|c| c.is_ascii_digit() || "-.%".contains(c)))
    });
    let line = |cells: [&str; N]| {
        let padded: Vec<_> = (0..N)
            .map(|column| {
                let (cell, width) = (cells[column], widths[column]);
                if numeric[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            })
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(header);
    for row in rows {
        text += &line(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

/// `key  value` lines; empty values are left out.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let lines = rows
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key:<width$}  {value}\n"));
    lines.collect()
}

/// A unit variant of the API's enums as the API writes it.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["db1".into(), "7".into(), String::new()], ["a-long-name".into(), "123".into(), "why".into()]];
        insta::assert_snapshot!(table(["NAME", "PORTS", "REASON"], &rows), @r"
        NAME         PORTS  REASON
        db1              7
        a-long-name    123  why
        ");
    }

    #[test]
    fn a_table_without_rows_is_its_header() {
        assert_eq!(table(["NAME", "PORTS"], &[]), "NAME  PORTS\n");
    }

    #[test]
    fn empty_fields_are_left_out() {
        insta::assert_snapshot!(fields(&[("name", "db1".into()), ("reason", String::new()), ("pid", "7".into())]), @r"
        name    db1
        pid     7
        ");
    }
}
