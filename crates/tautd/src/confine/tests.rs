//! Starts by a shell script in the launcher's place, which reports as the launcher does.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Makes a launcher that leaves the file `ran` once it is confirmed, and `given-up` otherwise.
fn confiner(dir: &Path) -> Confiner {
    let script = format!(
        "#!/bin/sh\n\
         [ $# = 0 ] || exit 1\n\
         echo \"{{\\\"pid\\\":$$}}\" >&{REPORT_FD}\n\
         echo '{{\"missing\":[{{\"wall\":\"landlock\",\"reason\":\"a test\"}}]}}' >&{REPORT_FD}\n\
         if [ \"$(head -c1 <&{CONFIRM_FD} | wc -c)\" = 1 ]; then touch '{dir}/ran'; else touch '{dir}/given-up'; fi\n\
         exec {REPORT_FD}>&- {CONFIRM_FD}<&-\n\
         exec sleep 60\n",
        dir = dir.display()
    );
    let program = dir.join(LAUNCHER);
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    Confiner::new(dir, Users::from(FIRST_USER))
}

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
