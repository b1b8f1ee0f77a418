//! A microguest returns what it receives on VMCI port 7, so the first connection of the guide shows
//! bytes in both directions.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use taut_tests::{Taut, eventually};

#[test]
fn a_microguest_returns_every_byte_in_order() {
    let taut = Taut::start();
    taut.boot("m", "kind = \"micro\"\nmemory = \"64MiB\"\n[vmci]\n");
    let device = || taut.json(["vm", "show", "m"])["status"]["vmci"].clone();
    eventually("the device is up", || (device()["link"] == "up").then_some(()));
    let socket = device()["socket"].as_str().unwrap().to_owned();
    let echoed = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let mut sender = stream.try_clone().unwrap();
        let mut answer = Vec::new();
        thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(b"CONNECT 7\n").unwrap();
                sender.write_all(bytes).unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
            });
            stream.read_to_end(&mut answer).unwrap();
        });
        let line = answer.iter().position(|byte| *byte == b'\n').expect("an answer to CONNECT");
        assert!(answer.starts_with(b"OK "), "{answer:?}");
        answer.split_off(line + 1)
    };
    assert_eq!(echoed(b"hello\n"), b"hello\n");
    // More than all buffers on the way.
    let many: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 251) as u8).collect();
    assert!(echoed(&many) == many, "the bytes came back changed");
    assert_eq!(echoed(b""), b"");
}
