//! Output: plain aligned tables for people, JSON for programs.

use std::io::{ErrorKind, Write as _};

use clap::ValueEnum;
use serde::Serialize;
use tabled::Table;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style, Width};
use taut_api::{ApiError, Name};

/// Result of a command.
pub(crate) type Outcome = Result<(), ApiError>;

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned text
    #[default]
    Table,
    /// The API's documents
    Json,
}

/// How a command reports: the format, and whether changes are reported at all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Format of results and errors.
    pub(crate) format: Format,
    /// True if a change prints nothing.
    pub(crate) quiet: bool,
}

impl Output {
    /// Reports a change: one line that says what is in force now, or the changed document as JSON.
    pub(crate) fn changed<T: Serialize>(self, document: &T, line: impl FnOnce(&T) -> String) {
        if !self.quiet {
            print(self.format, document, |document| line(document) + "\n");
        }
    }

    /// Reports that a resource is gone.
    pub(crate) fn deleted(self, noun: &str, name: &Name, how: &str) {
        let gone = serde_json::json!({ "deleted": name, "kind": noun });
        self.changed(&gone, |_| format!("{noun} {name}: {how}"));
    }
}

/// Prints `value` as JSON, or what `table` makes of it.
pub(crate) fn print<T: Serialize>(format: Format, value: &T, table: impl FnOnce(&T) -> String) {
    match format {
        Format::Table => write(&table(value)),
        Format::Json => write(&(json(value) + "\n")),
    }
}

/// Writes text to standard output. Ends the program if nobody reads it any more, as `head` does, or
/// if it cannot be written.
pub(crate) fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => {}
        // The command has done its work, and its reader wants no more of the output.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("error: the output cannot be written: {error}");
            eprintln!("hint: check the file or program that standard output leads to");
            std::process::exit(1);
        }
    }
}

/// Prints an error to standard error: text with causes and a hint, or the API's document.
pub(crate) fn print_error(format: Format, error: &ApiError) {
    match format {
        Format::Table => eprintln!("error: {error}"),
        Format::Json => eprintln!("{}", json(error)),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("API types are JSON")
}

/// Renders columns under a header, each as wide as its widest cell, two spaces apart. Columns of
/// numbers are aligned to the right.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut table: Builder = rows.iter().map(|row| row.iter().map(String::as_str)).collect();
    table.insert_record(0, header);
    let mut table = table.build();
    for column in 0..N {
        let numeric =
            |row: &[String; N]| row[column].chars().all(|c| c.is_ascii_digit() || "-.%".contains(c));
        if !rows.is_empty() && rows.iter().all(numeric) {
            table.modify(Columns::one(column), Alignment::right());
        }
    }
    plain(table)
}

/// Renders `key  value` lines; empty values are left out. The keys of all rows set the width.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let filled = rows.iter().filter(|(_, value)| !value.is_empty());
    let mut table = filled.map(|(key, value)| [*key, value]).collect::<Builder>().build();
    table.modify(Columns::first(), Width::increase(width));
    plain(table)
}

/// Renders a table without borders and without spaces at the end of a line.
fn plain(mut table: Table) -> String {
    table.with(Style::empty()).with(Padding::zero());
    table.modify(Columns::new(1..), Padding::new(2, 0, 0, 0));
    let mut text = String::new();
    for line in table.to_string().lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Returns a unit variant of the API's enums as the API writes it.
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
