//! Draws the results as percentile curves, one for each condition.

use super::ConditionResults;
use crate::report::drawing::SIZE;
use crate::report::picture::{self, Area, FAINT, Failure, INK, PictureError, curve, text};

pub(super) fn render(results: &ConditionResults) -> Result<String, PictureError> {
    picture::svg(SIZE, |area| draw(area, results))
}

fn draw(area: &Area<'_>, results: &ConditionResults) -> Result<(), Failure> {
    let summary = results.summary();
    let lines = i32::try_from(summary.len()).unwrap_or(0);
    let foot = 34 + 22 * lines.cast_unsigned();
    let (head, rest) = area.split_vertically(62);
    let (body, foot) = rest.split_vertically(SIZE.1 - 62 - foot);
    let names: Vec<_> = results.conditions.iter().map(|condition| condition.name.as_str()).collect();
    let title = format!("{}: {}", results.experiment.name(), names.join(", "));
    head.draw_text(&title, &text(26, INK), (24, 18))?;
    let how = format!("{}, {} neighbours", results.settings(), results.neighbours.len());
    head.draw_text(&how, &text(18, FAINT), (24, 44))?;
    let named: Vec<_> = results
        .conditions
        .iter()
        .map(|condition| (condition.name.clone(), &condition.configuration))
        .collect();
    curve::draw(&body, &named)?;
    for (line, at) in summary.iter().zip((6..).step_by(22)) {
        foot.draw_text(line, &text(17, INK), (24, at))?;
    }
    foot.draw_text(&results.host.to_string(), &text(15, FAINT), (24, 8 + 22 * lines))
}
