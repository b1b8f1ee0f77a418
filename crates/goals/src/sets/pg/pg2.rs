//! PG2: all pages in a browser, with and without script.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Counts of things that must not be.
const NONE: [Bound; 6] = [
    Bound::Exactly(0.0, "pages that fail"),
    Bound::Exactly(0.0, "controls without a name"),
    Bound::Exactly(0.0, "parts cut off"),
    Bound::Exactly(0.0, "reports of the policy"),
    Bound::Exactly(0.0, "messages in the console"),
    Bound::Exactly(0.0, "forms without effect"),
];

pub(super) const ROW: Row = Row {
    id: "PG2",
    what: "Chromium: all pages that links lead to, with and without script: names of controls in the accessibility \
           tree, reports of the policy, console, parts cut off at 320 to 2560 px; a form that is sent",
    on: "two microguests with a stream between them",
    goals: &[Goal::new("PG2-script", &NONE), Goal::new("PG2-no-script", &NONE)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-tests", "browser")?;
    let found = lab.run(&lab.in_checkout(program).args("pages").record("pages"))?.stdout.json()?;
    for (goal, name) in [("PG2-script", "with_script"), ("PG2-no-script", "without_script")] {
        let count = |list: &str| -> Measured<f64> { Ok(found.list(&format!("{name}.{list}"))?.len() as f64) };
        let pages = count("pages")?;
        let controls = found.count(&format!("{name}.controls"))?;
        let is_stand_in = lab.machine().is_stand_in();
        require((pages >= 10.0 && controls >= 100) || is_stand_in, "too few pages and controls were found")?;
        let form = f64::from(u8::from(!found.flag(&format!("{name}.form"))?));
        let figures = [
            count("failed")?,
            count("unnamed")?,
            count("cut_off")?,
            count("policy")?,
            count("console")?,
            form,
        ];
        results.record(goal, figures, format!("{pages} pages, {controls} controls, 5 widths"));
    }
    // Only script brings a page up to date that has a form.
    let updates = |name: &str| found.flag(&format!("{name}.updates"));
    require(
        updates("with_script")? || lab.machine().is_stand_in(),
        "a page with script does not update itself",
    )?;
    require(
        !updates("without_script")? || lab.machine().is_stand_in(),
        "the browser ran script that it was told not to run",
    )
}
