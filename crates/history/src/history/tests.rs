//! Histories of counters whose values the tests know.

use proptest::prelude::*;

use super::*;
use crate::growing::{MAX_UNWRITTEN, REST_WRITE_INTERVAL};
use crate::thinning::USUAL;

const START: Clocks = Clocks { since_boot: 5_000, wall: 1_700_000_000_000 };

fn open(folder: &tempfile::TempDir, boot: &str, clocks: Clocks) -> History {
    History::open(&folder.path().join("history.db"), USUAL, boot, clocks).unwrap()
}

/// Reads a counter that grows by 10 a second, from one second to another.
fn read(history: &mut History, seconds: std::ops::Range<u64>) {
    for second in seconds {
        history.record(1000 * second, "port", "web/0", &Reading::new([(1, 10 * second)]));
        if second % 5 == 0 {
            history.write().unwrap();
        }
    }
}

#[test]
fn averages_of_any_period_are_those_of_the_counters() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    read(&mut history, 5..100_000);
    history.prune(0, 1).unwrap();
    let now = history.timeline().position(99_999_000);
    for seconds in [10, 300, 3000, 40_000, 86_000] {
        let counted = history.counted("port", now - 1000 * seconds, now).unwrap().unwrap();
        assert_eq!(counted.to, now);
        let off = (now - counted.from).abs_diff(1000 * seconds);
        assert!(off <= 20_000.min(10 * seconds), "{seconds} s: {off} ms off");
        assert!((counted.values.per_second(1, counted.ms()) - 10.0).abs() < 1e-9);
    }
    assert_eq!(history.counted("other", 0, now).unwrap(), None);
}

#[test]
fn a_killed_owner_loses_nothing_but_detail() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    read(&mut history, 5..1004);
    // Four readings were not written. The counter goes on while nobody reads.
    drop(history);
    let mut history = open(&folder, "a", Clocks { since_boot: 1_060_000, wall: 1 });
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    assert_eq!(history.timeline().position(1_060_000), at(1060), "the clock was set meanwhile");
    read(&mut history, 1060..1101);
    let counted = history.counted("port", at(1000), at(1100)).unwrap().unwrap();
    assert_eq!((counted.from, counted.to, counted.values.get(1)), (at(1000), at(1100), 1000));
}

#[test]
fn a_subject_that_rests_is_seldom_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    let mut writes = 0;
    for second in 5..605 {
        history.record(1000 * second, "port", "web/0", &Reading::new([(1, 7)]));
        writes += usize::from(history.subjects["port"].growing[0].unwritten().is_some());
        history.write().unwrap();
    }
    assert!((10..=14).contains(&writes), "{writes}");
    let now = history.timeline().position(604_000);
    let counted = history.counted("port", now - 300_500, now).unwrap().unwrap();
    assert_eq!((counted.from, counted.to), (now - 300_500, now));
    assert_eq!(counted.values, Values::default());
}

#[test]
fn a_burst_after_a_rest_is_averaged_over_the_period() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    for second in (5_u64..20_000).chain(27_000..30_000) {
        // The subject rests for hours, and the owner sleeps meanwhile. Then it counts 100 a second.
        let count = 7 + 100 * second.saturating_sub(29_990);
        history.record(1000 * second, "port", "web/0", &Reading::new([(1, count)]));
        if second % 5 == 0 {
            history.write().unwrap();
        }
    }
    for seconds in [60, 300, 4000, 20_000] {
        let counted = history.counted("port", at(29_999) - 1000 * seconds, at(29_999)).unwrap().unwrap();
        assert_eq!(counted.values.get(1), 900);
        assert_eq!(counted.ms(), 1000 * seconds, "{counted:?}");
    }
    let busy = history.counted("port", at(29_994), at(29_999)).unwrap().unwrap();
    assert_eq!((busy.values.per_second(1, busy.ms()), busy.ms()), (100.0, 5000));
}

#[test]
fn a_period_that_ends_in_a_rest_ends_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    for second in 5..1005_u64 {
        history.record(1000 * second, "port", "web/0", &Reading::new([(1, 100 * second.min(20))]));
        history.write().unwrap();
    }
    for second in [25, 50, 700] {
        let counted = history.counted("port", at(10), at(second)).unwrap().unwrap();
        assert_eq!((counted.from, counted.to, counted.values.get(1)), (at(10), at(second), 1000));
    }
}

#[test]
fn a_period_that_begins_in_a_gap_begins_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    read(&mut history, 5..1000);
    read(&mut history, 1280..1320);
    let counted = history.counted("port", at(1260), at(1319)).unwrap().unwrap();
    assert_eq!((counted.from, counted.values.get(1)), (at(1280), 390));
    let before = history.counted("port", at(990), at(1319)).unwrap().unwrap();
    assert_eq!((before.from, before.values.get(1)), (at(990), 3290));
}

#[test]
fn a_subject_that_is_gone_stays_readable_by_thinner_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    read(&mut history, 5..4000);
    history.end_others(|_| false);
    for second in 4000..30_000 {
        history.record(1000 * second, "other", "x", &Reading::new([(1, second)]));
    }
    history.write().unwrap();
    history.prune(0, 1).unwrap();
    let now = history.timeline().position(30_000_000);
    let counted = history.counted("port", now - 86_000_000, now).unwrap().unwrap();
    assert!((39_000..40_000).contains(&counted.values.get(1)), "{counted:?}");
    assert_eq!(history.subjects_since(now - 1000), [("other", "x")]);
}

#[test]
fn samples_that_cannot_be_written_are_bounded() {
    let mut growing = Growing::default();
    for second in 0..100_000 {
        growing.add(USUAL[0], 1000 * second, &Values::new([(1, second)]), false);
    }
    assert_eq!(growing.full.len() * USUAL[0].chunk, MAX_UNWRITTEN);
    growing.mark_written();
    assert!(growing.full.is_empty() && growing.unwritten().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A counter grows, and rests for times of any length.
    #[test]
    fn growth_is_counted_between_rests_of_any_length(
        steps in prop::collection::vec((0_u64..3, 1_u64..50), 1..30),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut history = open(&folder, "a", START);
        let mut totals = vec![];
        for (growth, seconds) in steps {
            let total = totals.last().map_or(0, |(_, total)| *total) + growth;
            for _ in 0..seconds {
                let second = 5 + totals.len() as u64;
                totals.push((second, total));
                history.record(1000 * second, "port", "web/0", &Reading::new([(1, total)]));
                if second.is_multiple_of(5) {
                    history.write().unwrap();
                }
            }
        }
        let at = |second: u64| history.timeline().position(1000 * second);
        for (number, (from, before)) in totals.iter().enumerate().step_by(11) {
            for (to, after) in totals[number..].iter().skip(1).step_by(17) {
                // Within a rest there are no samples.
                let counted = history.counted("port", at(*from), at(*to)).unwrap();
                prop_assert_eq!(counted.map_or(0, |counted| counted.values.get(1)), after - before);
            }
        }
    }
}

/// Counts the rows of a table, and the bytes of their samples.
fn rows(folder: &tempfile::TempDir, table: &str) -> (usize, usize) {
    let file = rusqlite::Connection::open(folder.path().join("history.db")).unwrap();
    let sql = format!("SELECT count(*), coalesce(sum(length(samples)), 0) FROM {table}");
    file.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[test]
fn a_chunk_is_written_once_and_replaces_its_tails() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    // Samples of three densities: a chunk of each second is full after 32 of them.
    read(&mut history, 5..36);
    history.write().unwrap();
    drop(history);
    assert_eq!(rows(&folder, "chunks").0, 0);
    let (tails, bytes) = rows(&folder, "tails");
    assert_eq!(tails, 7 + 2 + 1, "those of 5, 10, … 35 s, of 5 and 25 s, and of 5 s");
    assert!(bytes < 250, "{bytes} bytes");
    // The next process takes them over as chunks.
    let mut history = open(&folder, "a", Clocks { since_boot: 60_000, wall: 1 });
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    let counted = |history: &History| history.counted("port", at(5), at(35)).unwrap().unwrap();
    assert_eq!(counted(&history).values.get(1), 300);
    history.write().unwrap();
    assert_eq!(counted(&history).values.get(1), 300);
    drop(history);
    assert_eq!((rows(&folder, "chunks").0, rows(&folder, "tails").0), (3, 0));
    let mut history = open(&folder, "a", Clocks { since_boot: 60_000, wall: 1 });
    read(&mut history, 60..95);
    history.write().unwrap();
    drop(history);
    assert_eq!((rows(&folder, "chunks").0, rows(&folder, "tails").0), (4, 1 + 2 + 1));
}

#[test]
fn a_rest_takes_one_tail_however_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    for second in 5..3605 {
        history.record(1000 * second, "port", "web/0", &Reading::new([(1, 7)]));
        if second % 5 == 0 {
            history.write().unwrap();
        }
    }
    drop(history);
    let (tails, _) = rows(&folder, "tails");
    assert!((3..=9).contains(&tails), "{tails}");
    let history = open(&folder, "a", Clocks { since_boot: 3_700_000, wall: 1 });
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    let counted = history.counted("port", at(100), at(3500)).unwrap().unwrap();
    assert_eq!((counted.from, counted.values), (at(100), Values::default()));
    let series = history.series("port", at(1000), at(3500), 300).unwrap();
    assert!(series.points.len() > 270, "a rest is no gap: {} points", series.points.len());
}

#[test]
fn of_many_subjects_that_ended_the_oldest_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    for second in 5..30 {
        let name = format!("foreign/{second}");
        history.record(1000 * second, &name, "x", &Reading::new([(1, second)]));
        history.record(1000 * second, "port", "web/0", &Reading::new([(1, second)]));
        history.end_others(|key| key == name || key == "port");
        history.write().unwrap();
        history.keep_newest(3, |key| key.starts_with("foreign/"));
    }
    let names = |history: &History| {
        history.subjects_since(0).into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
    };
    let expected = ["foreign/27", "foreign/28", "foreign/29", "port"];
    assert_eq!(names(&history), expected);
    history.write().unwrap();
    drop(history);
    let history = open(&folder, "a", START);
    assert_eq!(names(&history), expected);
    drop(history);
    assert_eq!((rows(&folder, "chunks").0, rows(&folder, "tails").0), (2 * 3, 25 + 2 + 1 + 3));
}

/// Writes 96 samples of a port that has ended, and returns the file.
fn file_of_an_ended_port(folder: &tempfile::TempDir) -> rusqlite::Connection {
    let mut history = open(folder, "a", START);
    read(&mut history, 5..101);
    history.end_others(|_| false);
    history.write().unwrap();
    drop(history);
    rusqlite::Connection::open(folder.path().join("history.db")).unwrap()
}

#[test]
fn a_damaged_sample_of_the_future_does_not_make_the_others_old() {
    let folder = tempfile::tempdir().unwrap();
    let file = file_of_an_ended_port(&folder);
    let future = Chunk::begin(Sample { at: LATEST - 5, totals: Values::new([(1, 5)]) }).encode();
    let sql = "INSERT INTO chunks VALUES (1, 0, ?1, ?1, ?2)";
    file.execute(sql, rusqlite::params![LATEST - 5, future]).unwrap();
    drop(file);
    let mut history = open(&folder, "a", Clocks { since_boot: 101_000, wall: 1 });
    read(&mut history, 101..200);
    history.prune(0, 1).unwrap();
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    assert_eq!(history.counted("port", at(5), at(100)).unwrap().unwrap().values.get(1), 950);
}

#[test]
fn a_file_of_the_version_before_keeps_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let file = file_of_an_ended_port(&folder);
    file.execute_batch("DROP TABLE tails; PRAGMA user_version = 1;").unwrap();
    drop(file);
    let mut history = open(&folder, "a", Clocks { since_boot: 101_000, wall: 1 });
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    assert_eq!(history.counted("port", at(5), at(100)).unwrap().unwrap().values.get(1), 950);
    read(&mut history, 101..200);
    assert_eq!(history.counted("port", at(5), at(199)).unwrap().unwrap().values.get(1), 1940);
}

#[test]
fn a_new_boot_continues_totals_and_an_old_subject_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    read(&mut history, 5..101);
    drop(history);
    let day = 86_400_000;
    let clocks = Clocks { since_boot: 1000, wall: START.wall + day };
    let mut history = open(&folder, "b", clocks);
    history.record(1000, "port", "shop/0", &Reading::new([(1, 3)]));
    history.write().unwrap();
    assert_eq!(history.subjects_since(0), [("port", "shop/0")], "it was renamed");
    let counted = history.counted("port", 0, u64::MAX).unwrap().unwrap();
    assert_eq!(counted.values.get(1), 1000 - 50 + 3, "the first reading was 50");
    history.end_others(|_| false);
    history.prune(0, 1).unwrap();
    assert_eq!(history.subjects_since(0).len(), 1, "its samples stay");
    for _ in 0..2 {
        history.record(31 * day, "other", "x", &Reading::default());
        history.write().unwrap();
        history.prune(0, 1).unwrap();
    }
    assert_eq!(history.subjects_since(0), [("other", "x")]);
}

#[test]
fn a_chart_has_few_points_whose_rates_are_those_of_the_counters() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    read(&mut history, 5..90_000);
    history.prune(0, 1).unwrap();
    let now = history.timeline().position(89_999_000);
    for (seconds, step) in [(60, 1), (300, 1), (3600, 12), (7200, 40), (86_400, 300)] {
        let series = history.series("port", now - 1000 * seconds, now, 300).unwrap();
        let least = seconds as usize / step as usize - 1;
        assert!((least..=301).contains(&series.points.len()), "{seconds} s: {} points", series.points.len());
        assert_eq!(series.step, 1000 * step);
        assert!(series.points.iter().all(|point| (point.values.per_second(1, point.ms) - 10.0).abs() < 1e-9));
        assert_eq!(series.points.last().unwrap().to, now, "the newest sample is in it");
    }
    let month = history.series("port", now - 2_592_000_000, now, 300).unwrap();
    assert_eq!((month.step, month.points.len()), (8_700_000, 11), "the port is a day old");
    assert_eq!(history.series("other", 0, now, 300).unwrap().points, []);
}

#[test]
fn a_chart_shows_the_time_without_an_owner_as_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = open(&folder, "a", START);
    read(&mut history, 5..101);
    drop(history);
    let mut history = open(&folder, "a", Clocks { since_boot: 160_000, wall: 1 });
    read(&mut history, 160..201);
    let at = |second: u64| START.wall - START.since_boot + 1000 * second;
    let series = history.series("port", at(50), at(200), 300).unwrap();
    let seconds: Vec<_> = series.points.iter().map(|point| (point.to - at(0)) / 1000).collect();
    assert_eq!(seconds, (51..=100).chain(161..=200).collect::<Vec<_>>());
    assert!(series.points.iter().all(|point| point.values.get(1) == 10));
    let boot = Clocks { since_boot: 500, wall: at(300) };
    drop(history);
    let mut history = open(&folder, "b", boot);
    history.record(500, "port", "web/0", &Reading::new([(1, 7)]));
    history.record(1500, "port", "web/0", &Reading::new([(1, 17)]));
    let series = history.series("port", at(250), at(302), 300).unwrap();
    assert_eq!(series.points.len(), 1, "the first sample of a boot begins its first step");
    assert_eq!(series.points[0].values.get(1), 10);
}

/// 30 days of a busy port take less than 2 MiB.
#[test]
fn a_busy_port_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let mut history = History::open(&path, USUAL, "a", START).unwrap();
    // As at 10 Gbit/s: of 14 counters, two count bytes.
    let busy = |second: u64| {
        let slow = (0..12).map(|number| (number, 200_000 * second));
        let fast = (12..14).map(|number| (number, 1_250_000_000 * second));
        Reading::new(slow.chain(fast))
    };
    // The dense samples of the last day; only the thin ones before.
    let days = 30 * 86_400;
    for second in (0..days - 86_400).step_by(300).chain(days - 86_400..days) {
        history.record(1000 * second, "port", "web/0", &busy(second));
        if second % 60 == 0 {
            history.write().unwrap();
            history.prune(0, 1).unwrap();
        }
    }
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < 2 << 20, "{size} bytes");
}

/// Records a counter in each second, with some ms of delay: in the first history each time, and in
/// the second one with rests. Calls `check` after each second.
fn record_rests(
    histories: &mut [History; 2],
    seconds: std::ops::Range<u64>,
    late: impl Fn(u64) -> u64,
    count: impl Fn(u64) -> u64,
    mut check: impl FnMut(&mut [History; 2], u64, u64),
) {
    let (mut last, mut rests) = (None, false);
    for second in seconds {
        let (since_boot, count) = (1000 * second + late(second), count(second));
        let reading = Reading::new([(1, count), (2, 9)]);
        let [read, rested] = &mut *histories;
        read.record(since_boot, "port", "web/0", &reading);
        let is_same = last.replace(count) == Some(count);
        rests = is_same && (rests || rested.begin_rest("port"));
        if !rests {
            rested.record(since_boot, "port", "web/0", &reading);
        }
        rested.rest_until(since_boot);
        for history in &mut *histories {
            if second % 5 == 0 {
                history.write().unwrap();
            }
            if second == 830 {
                history.end_others(|_| false);
                (last, rests) = (None, false);
            }
        }
        check(histories, second, since_boot);
    }
}

#[test]
fn rests_are_recorded_as_if_the_subject_was_read_all_the_time() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut histories = folders.each_ref().map(|folder| open(folder, "a", START));
    assert!(!histories[1].begin_rest("port"), "nobody has read it");
    // The counter grows in some seconds only, and begins again once.
    let count = |second: u64| if second < 700 { second / 40 } else { second / 90 };
    record_rests(
        &mut histories,
        5..1500,
        |_| 0,
        count,
        |histories, second, since_boot| {
            let now = histories[0].timeline().position(since_boot);
            assert_eq!(histories.each_ref().map(|history| history.last("port")), [Some(now); 2]);
            assert!(histories.iter().all(|history| history.subjects_since(now).len() == 1));
            if second % 37 != 0 {
                return;
            }
            for ms in [9_000, 600_000, 1_400_000] {
                let [read, rested] = histories.each_ref().map(|history| {
                    let counted = history.counted("port", now - ms, now).unwrap().unwrap();
                    (counted, history.series("port", now - ms, now, 1500).unwrap())
                });
                assert_eq!(read.0, rested.0, "{ms} ms at {second}");
                assert!(read.1 == rested.1, "series of {ms} ms at {second}");
            }
        },
    );
    drop(histories);
    // No more is lost than the newest part of a rest.
    let mut again = open(&folders[1], "a", Clocks { since_boot: 1_600_000, wall: 1 });
    let last = again.last("port").unwrap();
    assert!(again.timeline().position(1_499_000) - last <= REST_WRITE_INTERVAL + REST_RECORD_INTERVAL + 5000);
    assert!(!again.begin_rest("port"), "nobody has read it since");
}

#[test]
fn series_of_thin_samples_have_each_step_although_the_subject_rests_in_between() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut histories = folders.each_ref().map(|folder| open(folder, "a", START));
    let late = |second: u64| second * 7919 % 7;
    record_rests(&mut histories, 5..6000, late, |second| second / 50, |_, _, _| {});
    let now = histories[0].timeline().position(5_999_000 + late(5999));
    let [read, rested] = histories.each_ref().map(|history| {
        let series = history.series("port", now - 5_000_000, now, 300).unwrap();
        let total: u64 = series.points.iter().map(|point| point.values.get(1)).sum();
        let farthest = series.points.windows(2).map(|pair| pair[1].to - pair[0].to).max();
        assert!(farthest.unwrap() < 30_000 && (99..=101).contains(&total), "{farthest:?} ms, {total}");
        (series.step, series.points.len())
    });
    assert!(read.0 == 20_000 && read.0 == rested.0 && read.1.abs_diff(rested.1) <= 1, "{read:?} {rested:?}");
    for ms in [60_000, 5_000_000] {
        let [read, rested] = histories
            .each_ref()
            .map(|history| history.counted("port", now - ms, now).unwrap().unwrap().values.get(1));
        assert!(read.abs_diff(rested) <= 2, "{read} and {rested} in {ms} ms");
    }
}
