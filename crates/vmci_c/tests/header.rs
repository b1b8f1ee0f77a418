//! A C program with the header and the static library: types and names fit, and a socket that
//! cannot be attached is refused with errno and reason.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Asks for a queue pair on a socket that cannot have one, and with a short buffer for the reason.
const PROGRAM: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "taut_vmci.h"

int main(void)
{
	int pair[2];
	char reason[200] = "", brief[8] = "xxxxxxx";
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return 1;
	struct taut_vmci *line = taut_vmci_attach(pair[0], 50, reason, sizeof reason);
	printf("%s %d %s\n", line ? "attached" : "refused", errno == EOPNOTSUPP, reason);
	errno = 0;
	line = taut_vmci_attach(pair[0], 0, brief, sizeof brief);
	printf("%d %zu\n", errno == EOPNOTSUPP, strlen(brief));
	line = taut_vmci_attach(-1, 0, NULL, 0);
	printf("%d\n", line == NULL && errno == EBADF);
	taut_vmci_close(NULL);
	return 0;
}
"#;

/// Folder of the libraries that cargo has built for this test.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().to_owned()
}

/// The newest static library: cargo puts a hash into its name.
fn static_library() -> PathBuf {
    let files = std::fs::read_dir(libraries()).unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libtaut_vmci_c") && path.extension().is_some_and(|end| end == "a")
    };
    let newest = files.filter(is_ours).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the static library with the crate")
}

fn compile(source: &Path, program: &Path) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(include);
    compiler
        .arg(source)
        .arg(static_library())
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
        .arg(program);
    let output = compiler.output().expect("cc, which links Rust programs, is here");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_c_program_learns_why_its_socket_is_not_attached() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    compile(&source, &program);
    let output = Command::new(&program).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("refused 1 the socket is not a connected stream socket"), "{said}");
    assert!(lines[0].contains("; hint: attach a stream socket"), "{said}");
    assert_eq!(&lines[1..], ["1 7", "1"], "{said}");
}

#[test]
fn the_example_compiles_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/stream.c");
    compile(&source, &folder.path().join("stream"));
}
