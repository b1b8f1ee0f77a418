//! PG8: hostile values in all fields of the API.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG8",
    what: "schemathesis writes values of all kinds, valid or not, into every field of every write route, by the \
           OpenAPI document; the audit record tells what was done by halves",
    on: "a daemon with a microguest; without the routes that end the daemon or replace the fabric",
    goals: &[
        Goal::new(
            "PG8-answers",
            &[
                Bound::Exactly(0.0, "answers of 5xx"),
                Bound::Exactly(0.0, "other failures"),
                Bound::AtLeast(20.0, "operations"),
                Bound::AtLeast(1000.0, "requests"),
            ],
        ),
        Goal::new(
            "PG8-halves",
            &[
                Bound::Exactly(0.0, "documents with a step that no answer tells of"),
                Bound::Exactly(0.0, "lists that differ after a kill"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(1200, 30);
    let program = lab.example("taut-tests", "fuzz_api")?;
    let command = lab.in_checkout(program).args(format!("{seconds}")).record("fuzz");
    let found = lab.run(&command)?.stdout.json()?;
    let is_stand_in = lab.machine().is_stand_in();
    require(found.flag("daemon_lived")? || is_stand_in, "the daemon did not live through it")?;
    require(found.flag("audit_is_whole")? || is_stand_in, "the audit record is not whole")?;
    let list = |name: &str| -> Measured<f64> { Ok(found.list(name)?.len() as f64) };
    let count = |name: &str| -> Measured<f64> { Ok(found.count(name)? as f64) };
    let detail = format!("{} accepted, {} refused, over {seconds} s", count("accepted")?, count("refused")?);
    let answers = [list("server_errors")?, list("failures")?, count("operations")?, count("requests")?];
    results.record("PG8-answers", answers, detail);
    results.record("PG8-halves", [list("half_done")?, list("other_after_a_kill")?], "");
    Ok(())
}
