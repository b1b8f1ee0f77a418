//! Starts by a shell script in the launcher's place, which reports as the launcher does.

use std::fs;

use super::stand_in::confiner;
use super::*;

fn start(dir: &Path, record: impl FnOnce(&Started) -> io::Result<()>) -> io::Result<Started> {
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let program = Program {
        path: Path::new("/bin/true"),
        args: &[],
        descriptors: Vec::new(),
        input: None,
        output: &null,
        errors: &null,
        user: FIRST_USER,
        oom: OomScore::VM,
        devices: Devices::default(),
        locks_memory: false,
        threads: 64,
        walls: Walls::Vm,
        run_dir: dir,
    };
    confiner(dir).start(&program, record)
}

#[test]
fn a_process_is_recorded_before_its_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorded = None;
    let started = start(dir.path(), |started| {
        assert!(!dir.path().join("ran").exists(), "the program waits");
        recorded = Some((started.process.identity(), started.user));
        Ok(())
    });
    let started = started.unwrap();
    assert_eq!(recorded, Some((started.process.identity(), Some(FIRST_USER))));
    assert_eq!(started.missing, ["landlock (a test)"]);
    assert!(dir.path().join("ran").exists());
    started.process.kill(PATIENCE);
}

#[test]
fn without_a_record_the_program_never_runs_and_no_process_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut identity = None;
    let error = start(dir.path(), |started| {
        identity = Some(started.process.identity());
        Err(io::Error::other("no room"))
    });
    assert_eq!(error.unwrap_err().to_string(), "no room");
    assert!(Process::adopt(identity.unwrap()).is_none());
    assert!(!dir.path().join("ran").exists());
}

/// What the next daemon sees of a start that was not confirmed.
#[test]
fn a_launcher_is_told_from_its_program() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = dir.path().join(LAUNCHER);
    fs::copy("/bin/sleep", &launcher).unwrap();
    for (program, seconds, runs) in [("/bin/sleep", "60", true), (launcher.to_str().unwrap(), "0.3", false)] {
        let process = Process::spawn(Command::new(program).arg(seconds), &[]).unwrap();
        assert_eq!(is_program(&process), runs, "{program}");
        process.kill(PATIENCE);
    }
}
