//! The program `taut-inspect`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use taut_inspect::corpus::{hostile, valid};
use taut_inspect::{Answer, Format, inspect};

fn run(arguments: &[&str], stdin: impl Into<Stdio>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_taut-inspect")).args(arguments).stdin(stdin).output().unwrap()
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn answer(output: &Output, format: Format) -> Answer {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    Answer::read(&output.stdout[..], format).unwrap()
}

#[test]
fn it_answers_as_the_library_does() {
    let valid = valid().into_iter().map(|case| (case.format, case.image));
    let hostile = hostile().into_iter().map(|case| (case.format, case.image)).step_by(10);
    for (format, image) in valid.chain(hostile) {
        let output = run(&[format.name()], file(&image));
        assert_eq!(answer(&output, format), Answer::from(inspect(&image, format)));
    }
}

#[test]
fn its_answer_is_a_line_of_json() {
    let output = run(&["raw"], file(&[0; 1000]));
    let expected = "{\"image\":{\"format\":\"raw\",\"virtual_size\":1024,\"stated_size\":1000}}\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let output = run(&["qcow2"], file(b"QED\0"));
    let expected = "{\"refused\":{\"message\":\"this is no qcow2 image: the file begins with \
                    [51, 45, 44, 00] instead of [51, 46, 49, fb]\",\"hint\":\"name the format that the \
                    image really has (`format` in the VM file)\"}}\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn it_reads_any_offset_of_a_large_file() {
    let file = file(&[]);
    file.set_len(1 << 40).unwrap();
    let Answer::Image(image) = answer(&run(&["raw"], file), Format::Raw) else { panic!("refused") };
    assert_eq!(image.virtual_size, 1 << 40);
}

#[test]
fn what_is_no_file_is_refused() {
    for stdin in [Stdio::piped(), Stdio::null(), File::open("/").unwrap().into()] {
        let Answer::Refused(refused) = answer(&run(&["raw"], stdin), Format::Raw) else { panic!("accepted") };
        assert!(refused.message.contains("is neither a file nor a block device"), "{}", refused.message);
    }
}

#[test]
fn wrong_arguments_are_told_apart_from_refusals() {
    for (arguments, reason) in [
        (&[][..], "expected one argument, got 0"),
        (&["raw", "qcow2"], "expected one argument, got 2"),
        (&["vdi"], "\"vdi\" is no format of images; there are raw, qcow2 and vmdk"),
    ] {
        let output = run(arguments, Stdio::null());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(reason) && told.contains("hint: "), "{told}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut-inspect"));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.arg("raw").stdin(file(&[0; 512])).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// The program stops where it writes its answer, since the pipe is full. Then its limits can be
/// read.
#[test]
fn it_limits_itself() {
    const CAPACITY: usize = 64 << 10;
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b' '; CAPACITY]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut-inspect"));
    let mut child = command.arg("raw").stdin(file(&[0; 512])).stdout(writer).spawn().unwrap();
    drop(command);
    let limits = || fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let soft_and_hard = |name: &str| {
        let limits = limits();
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    // The last limit that it sets.
    let deadline = Instant::now() + Duration::from_secs(10);
    while soft_and_hard("Max core file size") != ["0", "0"] && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(soft_and_hard("Max core file size"), ["0", "0"]);
    assert_eq!(soft_and_hard("Max open files"), ["3", "3"]);
    assert_eq!(soft_and_hard("Max address space"), ["67108864", "67108864"]);
    assert_eq!(soft_and_hard("Max cpu time"), ["1", "1"]);
    let mut told = String::new();
    reader.read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success() && told.ends_with("}}\n"), "{told}");
}
