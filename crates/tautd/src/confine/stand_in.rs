//! Scripts in the place of programs, for tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use taut_launch::{CONFIRM_FD, REPORT_FD};

use super::{Confiner, FIRST_USER, LAUNCHER, Users};

/// Makes a program that is a shell script. Another process writes its file: a file that this one
/// has open for writing could not be started while a child of another test has a copy of the
/// descriptor.
pub(crate) fn write_script(path: &Path, script: &str) {
    let source = path.with_extension("source");
    fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
    let copied = Command::new("install").args(["-m", "755"]).arg(&source).arg(path).status();
    assert!(copied.unwrap().success());
}

/// Returns a confiner with a launcher that reports as `taut-launch` does. Once it is confirmed it
/// leaves the file `ran` in `dir`, and otherwise `given-up`.
pub(crate) fn confiner(dir: &Path) -> Confiner {
    let script = format!(
        "[ $# = 0 ] || exit 1\n\
         echo \"{{\\\"pid\\\":$$}}\" >&{REPORT_FD}\n\
         echo '{{\"missing\":[{{\"wall\":\"landlock\",\"reason\":\"a test\"}}]}}' >&{REPORT_FD}\n\
         if [ \"$(head -c1 <&{CONFIRM_FD} | wc -c)\" = 1 ]; then touch '{dir}/ran'; else touch '{dir}/given-up'; fi\n\
         exec {REPORT_FD}>&- {CONFIRM_FD}<&-\n\
         exec sleep 60",
        dir = dir.display()
    );
    write_script(&dir.join(LAUNCHER), &script);
    Confiner::new(dir, Users::from(FIRST_USER))
}
