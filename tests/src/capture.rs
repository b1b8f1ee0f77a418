//! A `taut capture` that runs, and a reader of the pcapng that it writes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::Taut;

/// A `taut capture` that has begun. It is killed when it is dropped.
#[derive(Debug)]
pub struct Capture {
    /// File that it writes.
    pub file: PathBuf,
    program: Child,
    stderr: BufReader<ChildStderr>,
}

/// The content of a file that a capture has written.
#[derive(Debug, Default)]
pub struct Captured {
    /// Name of the interface.
    pub name: String,
    /// Remark about the interface.
    pub comment: String,
    /// Longest part of a frame that is captured.
    pub snaplen: u32,
    /// The frames in their order.
    pub frames: Vec<CapturedFrame>,
    /// Numbers at the end: frames that the port had, and those of them that were lost. `None` if
    /// the file has no end yet.
    pub numbers: Option<(u64, u64)>,
}

/// A captured frame.
#[derive(Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Time in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// True if the port has sent it, false if it has received it.
    pub is_sent: bool,
    /// Length of the whole frame.
    pub len: u32,
    /// First bytes of the frame.
    pub bytes: Vec<u8>,
    /// Number of frames that were lost just before.
    pub lost: u64,
    /// Remark about its drop.
    pub comment: Option<String>,
}

impl Capture {
    /// Starts a capture of a port that writes a file of this name, and waits until it has begun.
    pub fn start(taut: &Taut, port: &str, name: &str, options: &[&str]) -> Self {
        let file = taut.dir().join(name);
        let mut command = taut.command();
        command.args(["capture", port, "-w"]).arg(&file).args(options);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = command.spawn().expect("taut can be run");
        let mut stderr = BufReader::new(program.stderr.take().expect("its standard error is a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("standard error can be read");
        let capture = Self { file, program, stderr };
        assert!(line.starts_with("capturing "), "{line}");
        capture
    }

    /// Ends the capture as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Kills the program.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Has the program read nothing until [`Self::resume`].
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a suspended program go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.program.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process number"), signal).expect("the program runs");
    }

    /// Waits until the capture has ended. Returns whether it ended well, what it said, and what it
    /// has captured.
    pub fn wait(mut self) -> (bool, String, Captured) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("standard error is text");
        let status = self.program.wait().expect("our child");
        (status.success(), said, self.read())
    }

    /// Reads what it has written so far.
    pub fn read(&self) -> Captured {
        Captured::read(&self.file)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Captured {
    /// Reads a file of whole blocks, which may grow: what is behind the last whole block is not
    /// read.
    ///
    /// # Panics
    /// If the file is no pcapng of taut.
    pub fn read(file: &Path) -> Self {
        let bytes = std::fs::read(file).unwrap_or_default();
        let mut captured = Self::default();
        let mut rest = &bytes[..];
        while rest.len() >= 12 {
            let len = word(rest, 4) as usize;
            assert!(len >= 12 && len.is_multiple_of(4), "a block of {len} bytes");
            let Some(block) = rest.get(..len) else { break };
            assert_eq!(word(block, len - 4) as usize, len, "the length at the end of a block");
            captured.add(word(block, 0), &block[8..len - 4]);
            rest = &rest[len..];
        }
        captured
    }

    fn add(&mut self, kind: u32, content: &[u8]) {
        match kind {
            0x0a0d_0d0a => assert_eq!(word(content, 0), 0x1a2b_3c4d, "little-endian"),
            1 => {
                assert_eq!(word(content, 0), 1, "Ethernet");
                self.snaplen = word(content, 4);
                for (code, value) in options(&content[8..]) {
                    match code {
                        1 => self.comment = text(value),
                        2 => self.name = text(value),
                        9 => assert_eq!(value, [9], "nanoseconds"),
                        _ => {}
                    }
                }
            }
            5 => {
                let number = |wanted| {
                    let found = options(&content[12..]).into_iter().find(|(code, _)| *code == wanted);
                    long(found.expect("statistics have their numbers").1)
                };
                self.numbers = Some((number(4), number(5)));
            }
            6 => self.frames.push(frame(content)),
            other => panic!("a block of kind {other}"),
        }
    }
}

fn frame(content: &[u8]) -> CapturedFrame {
    let captured = word(content, 12) as usize;
    let mut frame = CapturedFrame {
        at_ns: u64::from(word(content, 4)) << 32 | u64::from(word(content, 8)),
        is_sent: false,
        len: word(content, 16),
        bytes: content[20..20 + captured].to_vec(),
        lost: 0,
        comment: None,
    };
    for (code, value) in options(&content[20 + captured.next_multiple_of(4)..]) {
        match code {
            1 => frame.comment = Some(text(value)),
            2 => frame.is_sent = word(value, 0) == 2,
            4 => frame.lost = long(value),
            _ => {}
        }
    }
    frame
}

fn options(mut rest: &[u8]) -> Vec<(u16, &[u8])> {
    let mut options = Vec::new();
    while rest.len() >= 4 {
        let [code, len] = [0, 2].map(|at| u16::from_le_bytes([rest[at], rest[at + 1]]));
        if code == 0 {
            break;
        }
        options.push((code, &rest[4..4 + usize::from(len)]));
        rest = &rest[4 + usize::from(len).next_multiple_of(4)..];
    }
    options
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}
