use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use taut_api::audit::{AuditCaller, AuditedDocument};
use taut_api::role::Role;
use tempfile::TempDir;

use super::*;

fn caller(uid: u32) -> AuditCaller {
    AuditCaller {
        uid: Some(uid),
        gid: Some(100),
        pid: Some(7),
        start_time: Some(8),
        program: Some("/usr/bin/taut".into()),
        role: Some(Role::Define),
        ..AuditCaller::default()
    }
}

fn asked(uid: u32, path: &str) -> Asked {
    Asked::now(caller(uid), "PUT", path)
}

struct Recorder {
    dir: TempDir,
    audit: Audit,
    runtime: tokio::runtime::Runtime,
}

impl Recorder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::start(dir.path()).unwrap();
        Self { dir, audit, runtime: runtime() }
    }

    /// Starts again on the same files, as a new daemon does.
    fn again(self) -> Self {
        let Self { dir, audit, runtime } = self;
        drop(audit);
        let audit = Audit::start(dir.path()).unwrap();
        Self { dir, audit, runtime }
    }

    fn change(&self, uid: u32, path: &str) -> u64 {
        self.runtime.block_on(async {
            let seq = self.audit.request(asked(uid, path)).await.unwrap();
            self.audit.outcome(seq, outcome_now(200, None)).await.unwrap();
            seq
        })
    }

    fn paths(&self) -> Vec<String> {
        let entries = self.audit.newest(Chain::Changes, 1000, None).unwrap();
        entries.into_iter().map(|entry| entry.path).collect()
    }

    fn fault(&self) -> Option<String> {
        self.audit.check(Chain::Changes).unwrap().fault
    }

    fn text(&self) -> String {
        fs::read_to_string(self.dir.path().join(CHANGES)).unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn a_change_is_one_entry_with_its_caller_and_its_outcome() {
    let recorder = Recorder::new();
    let seq = recorder.runtime.block_on(recorder.audit.request(asked(1000, "/v1/vms/a"))).unwrap();
    let entries = || recorder.audit.newest(Chain::Changes, 10, None).unwrap();
    assert_eq!((entries()[0].seq, &entries()[0].outcome), (seq, &None), "it is on disk before the change");
    let subject = "vm/a".to_owned();
    let document = AuditedDocument { subject, revision: 4, before: None, after: Some(digest(b"{}")) };
    let outcome = AuditOutcome { document: Some(document), ..outcome_now(200, None) };
    recorder.runtime.block_on(recorder.audit.outcome(seq, outcome.clone())).unwrap();
    assert_eq!(entries().len(), 1);
    assert_eq!((&entries()[0].caller, &entries()[0].outcome), (&caller(1000), &Some(outcome)));
    let mode = recorder.dir.path().join(CHANGES).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn numbers_and_chain_go_on_after_a_restart() {
    let recorder = Recorder::new();
    assert_eq!(recorder.change(1000, "/a"), 1);
    let left_open = recorder.runtime.block_on(recorder.audit.request(asked(1000, "/killed"))).unwrap();
    assert_eq!(left_open, 2);
    let recorder = recorder.again();
    assert_eq!(recorder.change(1001, "/b"), 3);
    assert_eq!(recorder.paths(), ["/a", "/killed", "/b"]);
    assert_eq!(recorder.fault(), None);
    let of_user = recorder.audit.newest(Chain::Changes, 10, Some(1001)).unwrap();
    assert_eq!((of_user.len(), of_user[0].caller.uid), (1, Some(1001)));
    let killed = &recorder.audit.newest(Chain::Changes, 2, None).unwrap()[0];
    assert_eq!((killed.path.as_str(), &killed.outcome), ("/killed", &None));
    let check = recorder.audit.check(Chain::Changes).unwrap();
    assert_eq!((check.records, check.oldest, check.newest), (5, Some(1), Some(3)));
    assert_eq!(check.hash, digest(recorder.text().lines().last().unwrap().as_bytes()));
}

#[test]
fn a_record_that_a_crash_cut_off_is_removed() {
    let recorder = Recorder::new();
    recorder.change(1000, "/a");
    let whole = recorder.text();
    let path = recorder.dir.path().join(CHANGES);
    fs::write(&path, format!("{whole}{{\"seq\":7,\"pre")).unwrap();
    let recorder = recorder.again();
    assert_eq!(recorder.text(), whole);
    assert_eq!(recorder.change(1000, "/b"), 2);
    assert_eq!(recorder.fault(), None);
}

#[test]
fn a_changed_removed_or_inserted_record_breaks_the_chain() {
    let recorder = Recorder::new();
    for path in ["/first", "/second", "/third"] {
        recorder.change(1000, path);
    }
    let text = recorder.text();
    let lines: Vec<&str> = text.lines().collect();
    let path = recorder.dir.path().join(CHANGES);
    let mut without = lines.clone();
    without.remove(2);
    let mut twice = lines.clone();
    twice.insert(2, lines[2]);
    for (tampered, line) in [
        (text.replacen("/second", "/other", 1), "line 4 of"),
        (without.join("\n") + "\n", "line 3 of"),
        (twice.join("\n") + "\n", "line 4 of"),
        (text.replacen("\"seq\":2", "garbage", 1), "line 3 of"),
    ] {
        fs::write(&path, tampered).unwrap();
        let fault = recorder.fault().unwrap();
        assert!(fault.starts_with(line), "{fault}");
    }
    fs::write(&path, text).unwrap();
    assert_eq!(recorder.fault(), None);
}

#[test]
fn files_rotate_and_the_chain_goes_on_through_them() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name| Log::open(dir.path(), name).unwrap().rotated_at(2000);
    let audit = Audit::write_to(open(CHANGES), open(REFUSED)).unwrap();
    let runtime = runtime();
    for number in 1..=40 {
        let asked = asked(1000, &format!("/{number}"));
        let seq = runtime.block_on(audit.request(asked)).unwrap();
        assert_eq!(seq, number);
        runtime.block_on(audit.outcome(seq, outcome_now(200, None))).unwrap();
    }
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let expected =
        ["audit-refused.log", "audit.log", "audit.log.1", "audit.log.2", "audit.log.3", "audit.log.4"];
    assert_eq!(names, expected);
    let check = audit.check(Chain::Changes).unwrap();
    assert_eq!((check.fault, check.newest), (None, Some(40)));
    assert!(check.records > 10, "{} are kept", check.records);
    let entries = audit.newest(Chain::Changes, 8, None).unwrap();
    let kept: Vec<_> = entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(kept, (33..=40).collect::<Vec<_>>());
    assert!(entries.iter().all(|entry| entry.outcome.is_some()));
    // The next daemon knows the numbers, also right after a rotation.
    drop(audit);
    fs::write(dir.path().join(CHANGES), "").unwrap();
    let audit = Audit::start(dir.path()).unwrap();
    assert!(runtime.block_on(audit.request(asked(1000, "/next"))).unwrap() > 30);
    assert!(audit.newest(Chain::Changes, 1, None).unwrap()[0].path == "/next");
}

#[test]
fn refused_requests_are_apart_from_changes() {
    let recorder = Recorder::new();
    recorder.change(1000, "/a");
    let refused = recorder.audit.refused(asked(1001, "/b"), outcome_now(403, Some("no")));
    recorder.runtime.block_on(refused).unwrap();
    assert_eq!(recorder.paths(), ["/a"]);
    let entries = recorder.audit.newest(Chain::Refused, 10, None).unwrap();
    let outcome = entries[0].outcome.as_ref().unwrap();
    assert_eq!(
        (entries[0].caller.uid, outcome.status, outcome.error.as_deref()),
        (Some(1001), 403, Some("no"))
    );
    assert_eq!(recorder.audit.check(Chain::Refused).unwrap().fault, None);
}

/// Records that come at once are written together, so they wait for the disk a few times only.
#[test]
fn concurrent_changes_are_all_recorded() {
    let recorder = Recorder::new();
    let began = Instant::now();
    recorder.runtime.block_on(async {
        let audit = &recorder.audit;
        let mut sent = Vec::new();
        for number in 0..500 {
            sent.push(audit.request(asked(1000, &format!("/{number}"))));
        }
        let numbers = join_all(sent).await;
        let outcomes =
            numbers.iter().map(|seq| audit.outcome(*seq.as_ref().unwrap(), outcome_now(200, None)));
        join_all(outcomes.collect()).await.into_iter().for_each(Result::unwrap);
    });
    println!("500 concurrent changes: {:?}", began.elapsed());
    let check = recorder.audit.check(Chain::Changes).unwrap();
    assert_eq!((check.records, check.newest, check.fault), (1000, Some(500), None));
}

/// Waits for all futures at once.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in pending.iter_mut().zip(&mut done) {
            if let Some(waiting) = future
                && let std::task::Poll::Ready(output) = waiting.as_mut().poll(context)
            {
                *done = Some(output);
                *future = None;
            }
        }
        if pending.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[test]
fn a_request_that_cannot_be_recorded_is_an_error() {
    let recorder = Recorder::new();
    recorder.change(1000, "/a");
    // A file that cannot be written stands for a full disk.
    let mut log = Log::open(recorder.dir.path(), CHANGES).unwrap();
    log.replace_file(File::open(recorder.dir.path().join(CHANGES)).unwrap());
    let (done, mut answer) = oneshot::channel();
    append(&mut log, vec![Work { draft: Draft::Request(asked(1000, "/b")), done }]);
    let error = answer.try_recv().unwrap().unwrap_err().to_string();
    assert!(error.contains("nothing was changed") && error.contains("hint: check the disk"), "{error}");
    assert_eq!(recorder.paths(), ["/a"]);
}
