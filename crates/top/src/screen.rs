//! Draws a state of the screen: head, table, and lists of columns and keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use taut_host::observe::load::HostMemory;

use crate::keys::{Mode, State, letter};
use crate::rates::Rates;
use crate::table::{Cell, Row};
use crate::view::{Column, Form, View};

/// Lines above the rows of a table: three of the host, one for a message, and the titles.
const HEAD: u16 = 5;
/// Smallest width of a column with numbers.
const NARROWEST: usize = 6;
/// Sign of a cell without a figure.
const ABSENT: &str = "–";

/// Line that tells why there are no ports.
const NO_DAEMON: &str = "tautd does not answer: ports are absent";

/// Returns the number of rows of a table that fit.
pub fn page(height: u16) -> usize {
    usize::from(height.saturating_sub(HEAD + 1))
}

/// What is drawn.
#[derive(Debug)]
pub struct Shown<'a> {
    /// State of the screen.
    pub state: &'a State,
    /// Rates; none before the second reading.
    pub rates: Option<&'a Rates>,
    /// Rows of the view, arranged.
    pub rows: &'a [Row],
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>) {
    let area = frame.area();
    let lines = match &shown.state.mode {
        Mode::Help => help(shown.state.settings.view),
        Mode::Fields => fields(shown.state, "a letter shows or hides its column; any other key ends this"),
        Mode::Order => fields(
            shown.state,
            "a capital letter moves its column left, a small one right; any other key ends this",
        ),
        Mode::Table | Mode::Interval(_) => table(shown, area),
    };
    frame.render_widget(Paragraph::new(lines), area);
}

fn table(shown: &Shown<'_>, area: Rect) -> Vec<Line<'static>> {
    let (state, width) = (shown.state, usize::from(area.width));
    let view = state.settings.view;
    let mut lines = head(shown, width);
    let columns = fitting(view, state, shown.rows, width);
    let titles = columns.iter().map(|fit| fit.padded(fit.column.title));
    lines.push(Line::styled(
        format!("{:width$}", titles.collect::<Vec<_>>().join(" ")),
        Style::new().add_modifier(Modifier::REVERSED),
    ));
    let selected = state.selected_row(&shown.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>());
    let page = page(area.height);
    let skipped = (selected + 1).saturating_sub(page);
    let marked = state.selected.is_some();
    for (index, row) in shown.rows.iter().enumerate().skip(skipped).take(page) {
        let mut line = Line::from(columns.iter().flat_map(|fit| fit.spans(row)).collect::<Vec<_>>());
        if marked && index == selected {
            line = line.style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
        }
        lines.push(line);
    }
    lines.resize_with(usize::from(area.height.saturating_sub(1)), Line::default);
    lines.push(foot(state, shown.rows.len(), skipped, page));
    lines
}

/// Lines about the host, and one for a message.
fn head(shown: &Shown<'_>, width: usize) -> Vec<Line<'static>> {
    let settings = &shown.state.settings;
    let only = if settings.vms_only { ", VMs only" } else { "" };
    let Some(rates) = shown.rates else {
        let first = format!("taut top: {}, every {} s{only}", settings.view, settings.seconds);
        let lines = [first, "the first figures come after the second reading".to_owned()];
        let empty = (0..2).map(|_| String::new());
        return lines.into_iter().chain(empty).map(Line::from).collect();
    };
    let left_out = match rates.left_out {
        0 => String::new(),
        count => format!("; {count} processes left out: too many"),
    };
    let first = format!(
        "taut top: {}, every {} s{only}, {} VMs with {} vCPUs{left_out}",
        settings.view,
        settings.seconds,
        rates.vms.len(),
        rates.vcpus
    );
    let mean = rates.pcpus.values().sum::<f64>() / (rates.pcpus.len() as f64).max(1.0);
    let mut pcpus = format!("PCPU used {mean:.1} %:");
    for (cpu, percent) in &rates.pcpus {
        let next = format!(" {cpu}:{percent:.0}");
        if pcpus.len() + next.len() + 4 > width {
            pcpus += " …";
            break;
        }
        pcpus += &next;
    }
    let memory = rates.memory.map_or_else(String::new, |memory| {
        let HostMemory { total, available, huge, swap, swap_used } = memory;
        let [total, available, huge, swap, swap_used] =
            [total, available, huge, swap, swap_used].map(|bytes| bytes >> 20);
        format!(
            "memory {total} MiB, {available} available, {huge} for huge pages; swap {swap} MiB, \
             {swap_used} used"
        )
    });
    let message = match &shown.state.message {
        Some(message) => message.clone(),
        None if settings.view == View::Network && rates.ports.is_none() => NO_DAEMON.to_owned(),
        None => String::new(),
    };
    vec![Line::from(first), Line::from(pcpus), Line::from(memory), Line::styled(message, Color::Yellow)]
}

fn foot(state: &State, rows: usize, skipped: usize, page: usize) -> Line<'static> {
    if let Mode::Interval(typed) = &state.mode {
        return Line::from(format!(
            "seconds between two refreshes (now {}): {typed}_",
            state.settings.seconds
        ));
    }
    let more = rows.saturating_sub(skipped + page);
    let more = if more > 0 { format!(", {more} more rows below") } else { String::new() };
    Line::from(format!("h: help, q: end{more}"))
}

/// A column that fits on the screen.
struct Fit {
    index: usize,
    column: Column,
    width: usize,
}

/// Returns the columns that fit, with their widths. The first one is always there.
fn fitting(view: View, state: &State, rows: &[Row], width: usize) -> Vec<Fit> {
    let shown: Vec<_> = state.settings.layout(view).shown().collect();
    let chosen = shown.iter().take(1).chain(shown.iter().skip(1 + state.skipped));
    let (mut left, mut fits) = (width, Vec::new());
    for index in chosen.copied() {
        let column = view.columns()[index];
        let widest = || rows.iter().map(|row| Span::raw(content(&column, &row.cells[index])).width()).max();
        let needed = match column.form {
            Form::Text(most) => widest().unwrap_or(0).min(usize::from(most)),
            Form::Number(_) => widest().unwrap_or(0).max(NARROWEST),
        };
        let needed = needed.max(column.title.len());
        if needed > left && !fits.is_empty() {
            break;
        }
        let width = needed.min(left);
        left = left.saturating_sub(width + 1);
        fits.push(Fit { index, column, width });
    }
    fits
}

impl Fit {
    /// Returns the spans of a row's cell, with the space behind it.
    fn spans(&self, row: &Row) -> [Span<'static>; 2] {
        let cell = &row.cells[self.index];
        let style = match cell {
            Cell::Number { is_high: true, .. } => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        [Span::styled(self.padded(&content(&self.column, cell)), style), Span::raw(" ")]
    }

    /// Returns a text as wide as the column: cut, or with spaces.
    fn padded(&self, text: &str) -> String {
        let mut cut = String::new();
        let mut width = 0;
        for c in text.chars() {
            let next = Span::raw(c.to_string()).width();
            if width + next > self.width {
                break;
            }
            width += next;
            cut.push(c);
        }
        let spaces = " ".repeat(self.width - width);
        match self.column.form {
            Form::Number(_) => spaces + &cut,
            Form::Text(_) => cut + &spaces,
        }
    }
}

fn content(column: &Column, cell: &Cell) -> String {
    match (cell, column.form) {
        (Cell::Absent, _) => ABSENT.to_owned(),
        (Cell::Text(text), _) => text.clone(),
        (Cell::Number { value, .. }, Form::Number(decimals)) => format!("{value:.decimals$}"),
        (Cell::Number { value, .. }, Form::Text(_)) => value.to_string(),
    }
}

/// Returns the list of a view's columns with their letters.
fn fields(state: &State, advice: &'static str) -> Vec<Line<'static>> {
    let view = state.settings.view;
    let columns = state.settings.layout(view).all().map(|(column, shown)| {
        let Column { title, meaning, .. } = view.columns()[column];
        let mark = if shown { '*' } else { ' ' };
        Line::from(format!("{mark} {}: {title:<14} {meaning}", letter(column)))
    });
    let first = [Line::from(format!("Columns of the view {view}: {advice}")), Line::default()];
    first.into_iter().chain(columns).collect()
}

fn help(view: View) -> Vec<Line<'static>> {
    let views = View::ALL.map(|view| format!("{} {view}", view.key())).join(", ");
    let sort = view.sort_keys().iter().map(|(key, title)| format!("{key} {title}"));
    let lines = [
        format!("taut top {}", env!("CARGO_PKG_VERSION")),
        String::new(),
        format!("views      {views}"),
        format!("order by   {}", sort.collect::<Vec<_>>().join(", ")),
        "e, Enter   show or hide the vCPUs of the selected VM".to_owned(),
        "V          show VMs only, or everything".to_owned(),
        "f          choose columns".to_owned(),
        "o          move columns".to_owned(),
        "s          set the interval".to_owned(),
        "space      refresh now".to_owned(),
        "W          save these settings for the next time".to_owned(),
        "arrows     select a row; move columns into sight".to_owned(),
        "q          end".to_owned(),
        String::new(),
        format!(
            "A sign {ABSENT} stands where there is no figure. Red figures are above a limit that users of"
        ),
        "esxtop know:".to_owned(),
    ];
    let limits = View::ALL.into_iter().flat_map(View::columns).filter_map(|column| {
        let limit = column.limit?;
        Some(Line::from(format!("  {:<8} {limit:>2}   {}", column.title, column.meaning)))
    });
    let end = [String::new(), "Any key leaves this page. f explains all columns of a view.".to_owned()];
    lines.into_iter().map(Line::from).chain(limits).chain(end.map(Line::from)).collect()
}

#[cfg(test)]
mod tests;
