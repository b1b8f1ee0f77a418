//! The loops of `taut top`: on a terminal, and in batches of CSV.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::csv;
use crate::keys::{Effect, Key, Rows, State};
use crate::rates::{self, Rates};
use crate::reading::{Needs, PortSource, Reader, Reading, allow_open_files};
use crate::screen::{self, Shown};
use crate::settings::{Settings, USUAL_SECONDS};
use crate::table::{self, Row};
use crate::toprc;
use crate::view::View;

/// Time between the first two readings, so that figures come soon.
const FIRST: Duration = Duration::from_millis(500);
/// Longest wait for a key: a signal is seen after it.
const GLANCE: Duration = Duration::from_millis(200);

/// What the command line asks for. Absent options keep the saved settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The view to begin with; in batches, the only one.
    pub view: Option<View>,
    /// Time between two refreshes, in seconds.
    pub seconds: Option<f64>,
    /// Number of refreshes before the end.
    pub count: Option<u64>,
}

/// Writes samples as CSV, each with a line per row. `write` gets the header lines first.
pub fn batch(options: Options, ports: PortSource, write: &mut dyn FnMut(&str)) {
    let views = options.view.map_or_else(|| View::ALL.to_vec(), |view| vec![view]);
    let interval = Duration::from_secs_f64(options.seconds.unwrap_or(USUAL_SECONDS));
    write(&views.iter().map(|view| csv::header(*view)).collect::<String>());
    let needs = views.iter().map(|view| Needs::of(*view)).fold(Needs::LEAST, Needs::and);
    allow_open_files();
    let mut reader = Reader::new(Path::new("/"), ports);
    let mut before = reader.read(needs);
    let mut due = Instant::now();
    let mut left = options.count;
    while left != Some(0) {
        // A sample that was missed, because this program stood still, is not made up for.
        due = (due + interval).max(Instant::now());
        sleep(due.saturating_duration_since(Instant::now()));
        let after = reader.read(needs);
        let rates = rates::between(&before, &after);
        write(&views.iter().map(|view| csv::lines(*view, &rates)).collect::<String>());
        before = after;
        left = left.map(|left| left - 1);
    }
}

/// Shows the views on the terminal until the user ends that. The terminal is as before afterwards,
/// also after a signal or a panic.
///
/// # Errors
/// Returns the error of the terminal.
pub fn interactive(options: Options, ports: PortSource) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let saved = toprc::path().and_then(|path| toprc::read(&path));
    let (mut settings, message) = match saved {
        Ok(settings) => (settings, None),
        Err(error) => (Settings::default(), Some(format!("settings are the usual ones: {error}"))),
    };
    settings.view = options.view.unwrap_or(settings.view);
    settings.seconds = options.seconds.unwrap_or(settings.seconds);
    let state = State { settings, message, ..State::default() };
    // Also what was begun is undone if the rest fails. A panic restores the terminal by a hook.
    let _restore = Restore;
    allow_open_files();
    let mut terminal = ratatui::try_init()?;
    let mut session = Session { state, reader: Reader::new(Path::new("/"), ports), last: None, rates: None };
    session.run(&mut terminal, options.count, &stop)
}

/// Gives the terminal back.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

struct Session {
    state: State,
    reader: Reader,
    /// The last reading, and what it was for.
    last: Option<(Needs, Reading)>,
    /// Rates; none before the second reading for the view.
    rates: Option<Rates>,
}

impl Session {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        mut left: Option<u64>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        self.refresh();
        let mut refreshed = Instant::now();
        loop {
            let rows = self.rows();
            let height = self.draw(terminal, &rows)?;
            if left == Some(0) {
                return Ok(());
            }
            let interval = Duration::from_secs_f64(self.state.settings.seconds);
            let interval = if self.rates.is_none() { interval.min(FIRST) } else { interval };
            let until = refreshed + interval;
            let mut is_due = Instant::now() >= until;
            while !is_due && !stop.load(Ordering::Relaxed) {
                let wait = until.saturating_duration_since(Instant::now()).min(GLANCE);
                if event::poll(wait)? {
                    match self.take(&event::read()?, &rows, height) {
                        Effect::Quit => return Ok(()),
                        Effect::Refresh => is_due = true,
                        Effect::Save => self.save(),
                        Effect::None => {}
                    }
                    if self.lacks_figures() {
                        // A reading now, and the next one soon.
                        self.refresh();
                        refreshed = Instant::now();
                    }
                    break;
                }
                is_due = Instant::now() >= until;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if is_due {
                self.refresh();
                // From its end on, so that there is time for keys however long it took.
                refreshed = Instant::now();
                left = left.map(|left| left.saturating_sub(1));
            }
        }
    }

    fn refresh(&mut self) {
        let needs = Needs::of(self.state.settings.view);
        let now = self.reader.read(needs);
        let last = self.last.as_ref().filter(|(read, _)| read.covers(needs));
        self.rates = last.map(|(_, last)| rates::between(last, &now));
        self.last = Some((needs, now));
    }

    /// Returns whether the last reading is for another view, and has not what this one needs.
    fn lacks_figures(&self) -> bool {
        let needs = Needs::of(self.state.settings.view);
        !self.last.as_ref().is_some_and(|(read, _)| read.covers(needs))
    }

    fn rows(&self) -> Vec<Row> {
        let State { settings, expanded, .. } = &self.state;
        let rows = self.rates.as_ref().map(|rates| table::rows(settings.view, rates));
        table::arranged(rows.unwrap_or_default(), settings, expanded)
    }

    /// Draws the screen and returns its height.
    fn draw(&self, terminal: &mut DefaultTerminal, rows: &[Row]) -> io::Result<u16> {
        let shown = Shown { state: &self.state, rates: self.rates.as_ref(), rows };
        Ok(terminal.draw(|frame| screen::draw(frame, &shown))?.area.height)
    }

    fn take(&mut self, event: &Event, rows: &[Row], height: u16) -> Effect {
        let Event::Key(pressed) = event else { return Effect::None };
        let keys: Vec<_> = rows.iter().map(|row| row.key.clone()).collect();
        match key(pressed) {
            Pressed::End => Effect::Quit,
            Pressed::Other => Effect::None,
            Pressed::Key(key) => self.state.press(key, Rows { keys: &keys, page: screen::page(height) }),
        }
    }

    fn save(&mut self) {
        let saved = toprc::path().and_then(|path| {
            toprc::write(&path, &self.state.settings)?;
            Ok(path)
        });
        self.state.message = Some(match saved {
            Ok(path) => format!("settings are saved in {}", path.display()),
            Err(error) => format!("settings are not saved: {error}"),
        });
    }
}

/// A key of the terminal.
enum Pressed {
    Key(Key),
    /// The interrupt character, which is no signal while the terminal is in raw mode.
    End,
    Other,
}

fn key(event: &KeyEvent) -> Pressed {
    if event.kind == KeyEventKind::Release {
        return Pressed::Other;
    }
    if event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        let is_end = event.modifiers.contains(KeyModifiers::CONTROL) && event.code == KeyCode::Char('c');
        return if is_end { Pressed::End } else { Pressed::Other };
    }
    Pressed::Key(match event.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Move(-1),
        KeyCode::Down => Key::Move(1),
        KeyCode::PageUp => Key::Page(-1),
        KeyCode::PageDown => Key::Page(1),
        KeyCode::Left => Key::Side(-1),
        KeyCode::Right => Key::Side(1),
        _ => return Pressed::Other,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_interrupt_character_ends_and_other_control_characters_do_nothing() {
        let of = |code, modifiers| key(&KeyEvent::new(code, modifiers));
        assert!(matches!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Pressed::End));
        assert!(matches!(of(KeyCode::Char('W'), KeyModifiers::CONTROL), Pressed::Other));
        assert!(matches!(of(KeyCode::Char('W'), KeyModifiers::SHIFT), Pressed::Key(Key::Char('W'))));
        assert!(matches!(of(KeyCode::F(1), KeyModifiers::NONE), Pressed::Other));
    }

    #[test]
    fn this_host_is_read() {
        let mut reader = Reader::new(Path::new("/"), Box::new(|| None));
        let needs = View::ALL.into_iter().map(Needs::of).fold(Needs::LEAST, Needs::and);
        let before = reader.read(needs);
        let after = reader.read(needs);
        let rates = rates::between(&before, &after);
        assert!(rates.memory.is_some() && rates.ports.is_none());
        let own = std::process::id();
        assert!(after.threads.contains_key(&own));
        for view in View::ALL {
            let settings = Settings { view, ..Settings::default() };
            table::arranged(table::rows(view, &rates), &settings, &BTreeSet::new());
        }
    }
}
