use std::collections::BTreeSet;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::settings::Settings;
use crate::table;
use crate::test_rates;

/// Draws a state with the rates of `test_rates`.
fn drawn(state: &State, rates: Option<&Rates>, width: u16, height: u16) -> TestBackend {
    let settings = &state.settings;
    let rows = rates.map(|rates| table::rows(settings.view, rates)).unwrap_or_default();
    let rows = table::arranged(rows, settings, &state.expanded);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, &Shown { state, rates, rows: &rows })).unwrap();
    terminal.backend().clone()
}

fn of(view: View) -> State {
    State {
        settings: Settings { view, ..Settings::default() },
        expanded: BTreeSet::from(["712".to_owned()]),
        ..State::default()
    }
}

#[test]
fn each_view_is_drawn_narrow_and_wide() {
    let rates = test_rates::rates();
    for view in View::ALL {
        for width in [80, 200] {
            let name = format!("{}_{width}", view.word());
            insta::assert_snapshot!(name, drawn(&of(view), Some(&rates), width, 13));
        }
    }
}

#[test]
fn help_columns_and_questions_are_drawn() {
    let rates = test_rates::rates();
    for (name, mode) in [
        ("help", Mode::Help),
        ("fields", Mode::Fields),
        ("order", Mode::Order),
        ("interval", Mode::Interval("2.5".to_owned())),
    ] {
        let state = State { mode, ..of(View::Cpu) };
        insta::assert_snapshot!(name, drawn(&state, Some(&rates), 100, 26));
    }
}

#[test]
fn without_a_daemon_and_before_the_second_reading_the_head_says_so() {
    let rates = Rates { ports: None, ..test_rates::rates() };
    insta::assert_snapshot!("no_daemon", drawn(&of(View::Network), Some(&rates), 80, 8));
    insta::assert_snapshot!("no_rates", drawn(&of(View::Cpu), None, 80, 8));
}

#[test]
fn figures_above_a_limit_are_red_and_the_selected_row_is_in_sight() {
    let rates = test_rates::rates();
    let mut state = of(View::Cpu);
    let screen = drawn(&state, Some(&rates), 200, 13);
    let buffer = screen.buffer();
    let reds = |y: u16| {
        let red = (0..200).filter(|x| buffer[(*x, y)].fg == Color::Red);
        red.map(|x| buffer[(x, y)].symbol()).collect::<String>().trim().to_owned()
    };
    assert_eq!([reds(5), reds(6), reds(7)], ["52.50", "50.00", ""]);
    assert_eq!(reds(8), "0.50", "a VM that is throttled at all");
    state.selected = Some("815".to_owned());
    let small = drawn(&state, Some(&rates), 80, 8).to_string();
    assert!(small.contains("new") && !small.contains("vcpu-1:db"), "{small}");
    // No size is too small.
    drawn(&state, Some(&rates), 1, 1);
    drawn(&state, Some(&rates), 3, 6);
}
