//! Event loops of all kinds, children by vfork, and descriptors passed to other processes, in
//! Python.

use super::{MACHINE, Machine, checked, free_port};

/// Server that sends everything back reversed. It starts children while it listens and while it
/// serves.
const SERVER: &str = r#"
import asyncio, subprocess, sys

def children():
    for close_fds in (True, False):
        subprocess.run(["true"], stdin=subprocess.PIPE, close_fds=close_fds, check=True)

async def serve(reader, writer):
    children()
    data = await reader.read()
    writer.write(data[::-1])
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(sys.argv[1]))
    children()
    await server.serve_forever()

asyncio.run(main())
"#;

const CLIENT: &str = r#"
import asyncio, os, selectors, socket, sys, tempfile

address = (sys.argv[1], int(sys.argv[2]))
data = bytes(range(256)) * 4000

async def one(number):
    reader, writer = await asyncio.open_connection(*address)
    assert writer.get_extra_info("peername") == address
    writer.write(data)
    writer.write_eof()
    assert await reader.read() == data[::-1]
    writer.close()
    await writer.wait_closed()

async def many():
    await asyncio.gather(*(one(number) for number in range(10)))

def all_of(connection):
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)

def with_selector(kind):
    connection = socket.socket()
    connection.setblocking(False)
    with kind() as selector:
        selector.register(connection, selectors.EVENT_WRITE, "ours")
        connection.connect_ex(address)
        while True:
            [(key, events)] = selector.select()
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                break
        assert (key.data, events) == ("ours", selectors.EVENT_WRITE)
    connection.setblocking(True)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        assert connection.sendfile(file) == len(data)
    connection.shutdown(socket.SHUT_WR)
    assert all_of(connection) == data[::-1]

def passed_on():
    connection = socket.create_connection(address)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        _, [fd], _, _ = socket.recv_fds(theirs, 1, 1)
        received = socket.socket(fileno=fd)
        assert received.family == socket.AF_INET, received
        assert received.getpeername()[0] == address[0], received.getpeername()
        received.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received.sendall(b"passed on")
        received.shutdown(socket.SHUT_WR)
        os._exit(0)
    socket.send_fds(ours, [b"x"], [connection.fileno()])
    _, status = os.wait()
    assert status == 0
    assert all_of(connection) == b"no dessap"

asyncio.run(many())
for kind in (selectors.EpollSelector, selectors.PollSelector, selectors.SelectSelector):
    with_selector(kind)
passed_on()
print("all right")
"#;

#[test]
fn event_loops_child_processes_and_passed_descriptors_work() {
    let machine = Machine::new();
    let port = free_port();
    let _server = machine.serve(machine.program("python3").args(["-c", SERVER, &port.to_string()]), port);
    let output =
        machine.program("python3").args(["-c", CLIENT, MACHINE, &port.to_string()]).output().unwrap();
    assert_eq!(checked(output, "the client"), "all right\n");
    assert_eq!(machine.connections(), 14);
}

/// A listener is passed to another process, as in HAProxy's seamless reload. The receiver gets the
/// VMCI port, and TCP connections go on.
#[test]
fn a_listener_that_is_passed_on_listens_for_both_kinds() {
    const PROGRAM: &str = r#"
import os, select, signal, socket, sys, time
machine = sys.argv[1]
listener = socket.create_server(("0.0.0.0", 0))
port = listener.getsockname()[1]
def by_vmci():
    while True:
        try:
            connection = socket.create_connection((machine, port), 1)
            connection.settimeout(60)
            return connection
        except OSError:
            time.sleep(0.01)
select.select([listener], [], [], 0)
first = by_vmci()
assert listener.accept()[0].getpeername()[0] == machine
ours, theirs = socket.socketpair()
if os.fork() == 0:
    signal.alarm(60)
    listener.close()
    # Only now: a client of this copy of the listener would have been lost with it.
    theirs.send(b"x")
    _, [fd], _, _ = socket.recv_fds(theirs, 1, 1)
    received = socket.socket(fileno=fd)
    for _ in range(2):
        connection, peer = received.accept()
        connection.sendall(peer[0].encode())
    os._exit(0)
ours.recv(1)
socket.send_fds(ours, [b"x"], [listener.fileno()])
assert by_vmci().recv(100).decode() == machine
assert socket.create_connection(("127.0.0.1", port)).recv(100) == b"127.0.0.1"
assert os.wait()[1] == 0
# The receiver has gone. The first TCP connection after a second brings the port back.
time.sleep(1.1)
for _ in range(2):
    tcp = socket.create_connection(("127.0.0.1", port))
    assert listener.accept()[1] == tcp.getsockname()
by_vmci()
assert listener.accept()[1][0] == machine
print("all right")
"#;
    let machine = Machine::new();
    let output = machine.program("python3").args(["-c", PROGRAM, MACHINE]).output().unwrap();
    assert_eq!(checked(output, "python3"), "all right\n");
    assert_eq!(machine.connections(), 3);
}

/// Options that only TCP has are refused with a message.
#[test]
fn options_that_only_tcp_has_are_refused() {
    const PROGRAM: &str = r#"
import errno, socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for level, option in ((socket.IPPROTO_TCP, 31), (socket.SOL_SOCKET, 37)):  # TCP_ULP, SO_TIMESTAMPING
    try:
        connection.setsockopt(level, option, 1)
    except OSError as error:
        assert error.errno == errno.ENOPROTOOPT, error
    else:
        raise AssertionError((level, option))
try:
    connection.send(b"x", socket.MSG_OOB)
except OSError as error:
    assert error.errno == errno.EOPNOTSUPP, error
else:
    raise AssertionError("urgent data")
try:
    connection.getsockopt(socket.SOL_IP, 80, 16)  # SO_ORIGINAL_DST
except OSError as error:
    assert error.errno == errno.ENOPROTOOPT, error
"#;
    let machine = Machine::new();
    let port = free_port();
    let _server = machine.serve(machine.program("python3").args(["-c", SERVER, &port.to_string()]), port);
    let output =
        machine.program("python3").args(["-c", PROGRAM, MACHINE, &port.to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("setsockopt of option 31 at level 6 refused (ENOPROTOOPT)"), "{said}");
    assert!(said.contains("urgent data (MSG_OOB) refused (EOPNOTSUPP)"), "{said}");
    assert_eq!(said.matches("\nhint: ").count(), 2, "options once, urgent data once: {said}");
}
