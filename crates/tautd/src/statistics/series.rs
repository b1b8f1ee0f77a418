//! Rates of one subject step by step, for charts.

use std::collections::BTreeMap;

use taut_api::statistics::{Column, Period, Series, SeriesPoint, Subject};
use taut_history::{Clocks, FileError, History, Point};

use super::{host, machines, ports, sockets};

/// Most steps of a series.
const MOST_STEPS: u64 = 300;

/// Returns the values of a point, in the order of the subject's columns.
type ValuesOf = fn(&Point) -> Vec<Option<f64>>;

/// A subject that a client asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Kind of the subject.
    pub(crate) subject: Subject,
    /// Its name. The host needs none.
    pub(crate) name: String,
    /// Its process, which tells apart VMs with one name.
    pub(crate) pid: Option<u32>,
}

/// Returns the rates of a subject over the period before now; nothing if no such subject has
/// samples in the period. Of several with the name, those that are running come first, and then
/// those that were sampled last. `running` are the processes of running machines, by key.
pub(super) fn series(
    history: &History,
    running: &BTreeMap<String, u32>,
    asked: &Asked,
    period: Period,
    now: Clocks,
) -> Result<Option<Series>, FileError> {
    let end = history.timeline().position(now.since_boot);
    let begin = end.saturating_sub(period.ms());
    let is_asked = |(key, name): &(&str, &str)| {
        let has_name = match asked.subject {
            Subject::Port => ports::is_key(key) && *name == asked.name,
            Subject::Uplink => {
                ports::is_key(key) && name.strip_prefix("uplink/") == Some(asked.name.as_str())
            }
            Subject::Vm => machines::is_key(key) && *name == asked.name,
            Subject::Sockets => sockets::is_key(key) && *name == asked.name,
            Subject::Host => *key == host::KEY,
        };
        has_name && asked.pid.is_none_or(|pid| running.get(*key) == Some(&pid))
    };
    let subjects = history.subjects_since(begin).into_iter().filter(is_asked);
    let Some((key, name)) = subjects.max_by_key(|(key, _)| (running.contains_key(*key), history.last(key)))
    else {
        return Ok(None);
    };
    let found = history.series(key, begin, end, MOST_STEPS)?;
    let (columns, values): (&[Column], ValuesOf) = match asked.subject {
        Subject::Port | Subject::Uplink => (&ports::COLUMNS, ports::values),
        Subject::Vm => (&machines::COLUMNS, machines::values),
        Subject::Sockets => (&sockets::COLUMNS, sockets::values),
        Subject::Host => (&host::COLUMNS, host::values),
    };
    let point = |point: &Point| SeriesPoint {
        to_ms: history.timeline().wall(point.to, now),
        covered_ms: point.ms,
        values: values(point),
    };
    Ok(Some(Series {
        subject: asked.subject,
        name: name.to_owned(),
        from_ms: now.wall.saturating_sub(period.ms()),
        to_ms: now.wall,
        step_ms: found.step,
        columns: columns.to_vec(),
        points: found.points.iter().map(point).collect(),
    }))
}
