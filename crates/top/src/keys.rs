//! Keys: what each does to the state of the screen. They are esxtop's, where esxtop has them.

use std::collections::BTreeSet;

use crate::settings::{Settings, seconds};
use crate::view::View;

/// Largest number of characters of an interval that is typed.
const LONGEST: usize = 8;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// The enter key.
    Enter,
    /// The escape key.
    Escape,
    /// The backspace key.
    Backspace,
    /// Move the selection by so many rows.
    Move(isize),
    /// Move the selection by so many pages.
    Page(isize),
    /// Move the columns by so many.
    Side(isize),
}

/// Mode of the screen: a view, or a question or help in its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mode {
    /// The table of a view.
    #[default]
    Table,
    /// The help.
    Help,
    /// The list of columns, to choose some.
    Fields,
    /// The list of columns, to move some.
    Order,
    /// The question for an interval, with what was typed.
    Interval(String),
}

/// State of the screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// The user's settings.
    pub settings: Settings,
    /// Mode of the screen.
    pub mode: Mode,
    /// Key of the row that is selected.
    pub selected: Option<String>,
    /// Keys of the rows that are expanded.
    pub expanded: BTreeSet<String>,
    /// Number of columns that are left out on the left, behind the first one.
    pub skipped: usize,
    /// Message until the next key.
    pub message: Option<String>,
}

/// Work that a key asks the loop to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// No work.
    None,
    /// A refresh now.
    Refresh,
    /// Save the settings.
    Save,
    /// The end.
    Quit,
}

/// The rows that are shown at the time of a key.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Keys of the rows, parts of expanded ones included.
    pub keys: &'a [String],
    /// Number of rows that fit on the screen.
    pub page: usize,
}

impl State {
    /// Applies a key.
    pub fn press(&mut self, key: Key, rows: Rows<'_>) -> Effect {
        self.message = None;
        match std::mem::take(&mut self.mode) {
            Mode::Table => return self.press_in_table(key, rows),
            // Any key leaves the help.
            Mode::Help => {}
            Mode::Fields => {
                if let Some(column) = self.lettered(key) {
                    self.settings.layout_mut(self.settings.view).toggle(column);
                    self.mode = Mode::Fields;
                }
            }
            Mode::Order => {
                if let (Some(column), Key::Char(letter)) = (self.lettered(key), key) {
                    self.settings.layout_mut(self.settings.view).shift(column, letter.is_ascii_uppercase());
                    self.mode = Mode::Order;
                }
            }
            Mode::Interval(typed) => self.type_interval(typed, key),
        }
        Effect::None
    }

    /// Returns the index of the selected row; the first one if it is gone.
    pub fn selected_row(&self, keys: &[String]) -> usize {
        self.selected.as_ref().and_then(|key| keys.iter().position(|each| each == key)).unwrap_or(0)
    }

    fn press_in_table(&mut self, key: Key, rows: Rows<'_>) -> Effect {
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char(' ') => return Effect::Refresh,
            Key::Char('W') => return Effect::Save,
            Key::Char('h' | '?') => self.mode = Mode::Help,
            Key::Char('f') => self.mode = Mode::Fields,
            Key::Char('o') => self.mode = Mode::Order,
            Key::Char('s') => self.mode = Mode::Interval(String::new()),
            Key::Char('V') => self.settings.vms_only = !self.settings.vms_only,
            Key::Char('e') | Key::Enter => self.expand(rows),
            Key::Char(letter) => self.press_letter(letter),
            Key::Move(by) => self.select(by, rows),
            Key::Page(by) => {
                let page = isize::try_from(rows.page.max(1)).unwrap_or(isize::MAX);
                self.select(by.saturating_mul(page), rows);
            }
            Key::Side(by) => {
                let most = self.settings.layout(self.settings.view).shown().count().saturating_sub(2);
                self.skipped = self.skipped.saturating_add_signed(by).min(most);
            }
            Key::Escape | Key::Backspace => {}
        }
        Effect::None
    }

    /// Applies a key that shows a view or orders its rows.
    fn press_letter(&mut self, letter: char) {
        let view = self.settings.view;
        if let Some(view) = View::of_key(letter) {
            self.settings.view = view;
            self.selected = None;
            self.skipped = 0;
        } else if let Some((_, title)) = view.sort_keys().iter().find(|(key, _)| *key == letter) {
            self.settings.layout_mut(view).sort = view.column(title).unwrap_or(0);
        } else {
            self.message = Some(format!("there is no key {letter:?}: h shows those that there are"));
        }
    }

    /// Expands the selected row, or closes it. A part stands for its row.
    fn expand(&mut self, rows: Rows<'_>) {
        let Some(key) = rows.keys.get(self.selected_row(rows.keys)) else { return };
        let whole = key.split('/').next().unwrap_or(key).to_owned();
        if !self.expanded.remove(&whole) {
            self.expanded.insert(whole.clone());
        }
        self.selected = Some(whole);
    }

    fn select(&mut self, by: isize, rows: Rows<'_>) {
        let last = rows.keys.len().saturating_sub(1);
        let at = self.selected_row(rows.keys).saturating_add_signed(by).min(last);
        self.selected = rows.keys.get(at).cloned();
    }

    /// Returns the column whose letter a key is, in either case.
    fn lettered(&self, key: Key) -> Option<usize> {
        let Key::Char(letter) = key else { return None };
        let column = (letter.to_ascii_uppercase() as usize).checked_sub('A' as usize)?;
        (column < self.settings.view.columns().len()).then_some(column)
    }

    fn type_interval(&mut self, mut typed: String, key: Key) {
        match key {
            Key::Char(c) if c.is_ascii_digit() || c == '.' => {
                let has_room = typed.len() < LONGEST;
                typed.extend(has_room.then_some(c));
            }
            Key::Backspace => _ = typed.pop(),
            Key::Enter => {
                match seconds(&typed) {
                    Ok(seconds) => self.settings.seconds = seconds,
                    Err(_) if typed.is_empty() => {}
                    Err(reason) => self.message = Some(reason),
                }
                return;
            }
            Key::Escape => return,
            _ => {}
        }
        self.mode = Mode::Interval(typed);
    }
}

/// Returns the letter of a column.
pub const fn letter(column: usize) -> char {
    (b'A' + column as u8) as char
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Presses keys, of which characters are themselves, `\n` is enter and `<` escape.
    fn press(state: &mut State, keys: &str) -> Effect {
        let rows = ["7", "7/0", "9"].map(str::to_owned);
        let rows = Rows { keys: &rows, page: 2 };
        let key = |c| match c {
            '\n' => Key::Enter,
            '<' => Key::Escape,
            '\u{8}' => Key::Backspace,
            '↓' => Key::Move(1),
            '↑' => Key::Move(-1),
            '⇓' => Key::Page(1),
            '→' => Key::Side(1),
            c => Key::Char(c),
        };
        keys.chars().map(|c| state.press(key(c), rows)).last().unwrap()
    }

    #[test]
    fn letters_show_views_and_order_rows() {
        let mut state = State::default();
        for view in View::ALL {
            press(&mut state, &view.key().to_string());
            assert_eq!(state.settings.view, view);
        }
        press(&mut state, "nr");
        let layout = state.settings.layout(View::Network);
        assert_eq!(View::Network.columns()[layout.sort].title, "PKTRX/s");
        press(&mut state, "x");
        assert_eq!(state.message.as_deref(), Some("there is no key 'x': h shows those that there are"));
        press(&mut state, "V");
        assert_eq!((state.settings.vms_only, state.message.is_none()), (true, true));
    }

    #[test]
    fn keys_ask_for_a_refresh_saving_and_the_end() {
        let mut state = State::default();
        for (key, effect) in
            [(" ", Effect::Refresh), ("W", Effect::Save), ("q", Effect::Quit), ("c", Effect::None)]
        {
            assert_eq!(press(&mut state, key), effect);
        }
        assert_eq!(press(&mut state, "hq"), Effect::None, "any key leaves the help first");
        assert_eq!(state.mode, Mode::Table);
    }

    #[test]
    fn an_interval_is_typed_and_checked() {
        let mut state = State::default();
        press(&mut state, "s12\u{8}x.5\n");
        assert_eq!((state.settings.seconds.to_string(), &state.mode), ("1.5".to_owned(), &Mode::Table));
        press(&mut state, "s9<");
        press(&mut state, "s\n");
        assert_eq!(state.settings.seconds.to_string(), "1.5");
        press(&mut state, "s0\n");
        assert!(state.message.as_ref().unwrap().contains("`0` is not a number of seconds"));
        press(&mut state, "s1234567890");
        assert_eq!(state.mode, Mode::Interval("12345678".to_owned()));
    }

    #[test]
    fn fields_are_chosen_and_moved_by_their_letters() {
        let mut state = State::default();
        press(&mut state, "fAb");
        assert_eq!(state.mode, Mode::Fields);
        assert_eq!(state.settings.layout(View::Cpu).shown().take(2).collect::<Vec<_>>(), [1, 2]);
        press(&mut state, "<oCCa\n");
        assert_eq!(state.mode, Mode::Table);
        let order: Vec<_> =
            state.settings.layout(View::Cpu).all().map(|(column, _)| column).take(3).collect();
        assert_eq!(order, [2, 1, 0]);
        press(&mut state, "fz");
        assert_eq!(state.mode, Mode::Table, "no column has this letter");
    }

    #[test]
    fn the_selected_row_is_expanded_and_stays_selected() {
        let mut state = State::default();
        press(&mut state, "↓e");
        assert_eq!((state.selected.as_deref(), state.expanded.contains("7")), (Some("7"), true));
        press(&mut state, "⇓");
        assert_eq!(state.selected.as_deref(), Some("9"));
        press(&mut state, "⇓↑↑e");
        assert!(state.expanded.is_empty());
        press(&mut state, "↑↑↑");
        assert_eq!(state.selected.as_deref(), Some("7"));
        press(&mut state, "→→");
        assert_eq!(state.skipped, 2);
        press(&mut state, "m");
        assert_eq!((state.selected, state.skipped), (None, 0));
    }
}
