//! Conversations over a socket pair, with a back end that does nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use proptest::prelude::*;

use super::protocol::{
    AgentError, Answer, Call, Configure, Cpu, Hello, Interface, Kind, Latency, MAX_LINE, Outcome, PROTOCOL,
    Ping, Probe, Probed, Reply, Request, Rr, Serve, Stream, Throughput, Work,
};
use super::{Backend, Client, ClientError, Run, Serving, Spinning, serve};
use crate::measure::latencies::Latencies;

const LONG: Duration = Duration::from_secs(60);

/// Answers pings at once, and lets a request/response run until it is stopped.
#[derive(Default)]
struct Idle {
    servers: Arc<AtomicUsize>,
}

struct IdleServer(Arc<AtomicUsize>);

impl Serving for IdleServer {
    fn port(&self) -> u16 {
        7
    }
}

impl Drop for IdleServer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn latency() -> Latency {
    Latency { rtt_ns: Latencies::new(), sent: 4, lost: 1, duplicates: 0, elapsed_us: 5 }
}

/// Counts one unit each time that it is read.
struct IdleSpinner(Arc<AtomicUsize>);

impl Spinning for IdleSpinner {
    fn units(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) as u64
    }
}

impl Backend for Idle {
    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: "0".into(),
            kind: Kind::Micro,
            hostname: "idle".into(),
            kernel: "none".into(),
        }
    }

    fn addresses(&self) -> Result<Vec<Interface>, AgentError> {
        let ips = vec!["10.0.0.1/24".parse().unwrap()];
        let mac = "02:00:00:00:00:01".into();
        Ok(vec![Interface { name: "eth0".into(), mac, ips, carrier: true, carrier_changes: 2 }])
    }

    fn configure(&self, wanted: &Configure) -> Result<(), AgentError> {
        Err(AgentError::new(format!("no {}", wanted.mac), "none"))
    }

    fn cid(&self) -> Result<u32, AgentError> {
        Ok(7)
    }

    fn serve(&self, _: &Serve) -> Result<Box<dyn Serving>, AgentError> {
        self.servers.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(IdleServer(Arc::clone(&self.servers))))
    }

    fn spin(&self) -> Result<Box<dyn Spinning>, AgentError> {
        Ok(Box::new(IdleSpinner(Arc::default())))
    }

    fn ping(&self, _: &Ping, run: &Run<'_>) -> Result<Latency, AgentError> {
        run.started();
        Ok(latency())
    }

    fn rr(&self, _: &Rr, run: &Run<'_>) -> Result<Latency, AgentError> {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&over);
        run.on_stop(move || {
            *signal.0.lock().unwrap() = true;
            signal.1.notify_all();
        });
        run.started();
        drop(over.1.wait_while(over.0.lock().unwrap(), |over| !*over).unwrap());
        assert!(run.is_stopped());
        Ok(latency())
    }

    fn stream(&self, _: &Stream, _: &Run<'_>) -> Result<Throughput, AgentError> {
        Ok(Throughput { bytes: 8, elapsed_us: 2, sessions: vec![8] })
    }

    fn probe(&self, wanted: &Probe, _: &Run<'_>) -> Result<Vec<Probed>, AgentError> {
        wanted.begin()
    }

    fn cpu(&self) -> Result<Cpu, AgentError> {
        Ok(Cpu::default())
    }

    fn poweroff(&self) -> Result<(), AgentError> {
        Err(AgentError::new("stays on", "none"))
    }
}

/// Starts an agent on the other end of the socket. Its thread ends with the conversation.
fn agent(servers: &Arc<AtomicUsize>) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let backend = Idle { servers: Arc::clone(servers) };
    (ours, thread::spawn(move || serve(&theirs, &theirs, &backend).unwrap()))
}

fn client(stream: &UnixStream) -> Result<Client, ClientError> {
    let end = || stream.try_clone().unwrap().into();
    Client::over("test", end(), end(), LONG)
}

fn ping() -> Ping {
    Ping { to: Ipv4Addr::LOCALHOST, size: 1, interval_us: 1, duration_ms: 1, count: None }
}

fn endless() -> Rr {
    Rr {
        to: Ipv4Addr::LOCALHOST.into(),
        port: 7,
        socket_size: None,
        interval_us: None,
        size: 1,
        duration_ms: 1,
    }
}

/// Writes `lines` and reads `count` replies.
fn replies(stream: &UnixStream, lines: &[u8], count: usize) -> Vec<Reply> {
    (&*stream).write_all(lines).unwrap();
    let reader = BufReader::with_capacity(1, stream);
    reader.lines().take(count).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[test]
fn every_kind_of_request_is_answered() {
    let servers = Arc::default();
    let (stream, _thread) = agent(&servers);
    let mut client = client(&stream).unwrap();
    assert_eq!(client.hello().hostname, "idle");
    let Answer::Addresses(interfaces) = client.call(Request::Addresses, LONG).unwrap() else { panic!() };
    assert_eq!(interfaces[0].ips[0].to_string(), "10.0.0.1/24");
    let Answer::Server(server) = client.call(Request::Serve(Serve::default()), LONG).unwrap() else {
        panic!()
    };
    assert_eq!(server.port, 7);
    let mut begun = 0;
    let answer = client.call_and_watch(Request::Ping(ping()), LONG, || begun += 1).unwrap();
    assert_eq!((answer, begun), (Answer::Latency(latency()), 1));
    assert_eq!(client.call(Request::Cpu, LONG).unwrap(), Answer::Cpu(Cpu::default()));
    assert_eq!(client.call(Request::Poweroff, LONG).unwrap(), Answer::Ok);
    let wanted = Configure { mac: "x".into(), ip: "10.0.0.1/8".parse().unwrap() };
    let error = client.call(Request::Configure(wanted), LONG).unwrap_err();
    assert!(matches!(&error, ClientError::Failed { source, .. } if source.message == "no x"), "{error}");
}

#[test]
fn work_is_counted_from_spin_to_rest() {
    let servers = Arc::default();
    let (stream, _thread) = agent(&servers);
    let mut client = client(&stream).unwrap();
    assert!(client.call(Request::Work, LONG).is_err());
    let mut works = |request| client.call(request, LONG);
    assert_eq!(works(Request::Spin).unwrap(), Answer::Ok);
    let mut units = || match works(Request::Work).unwrap() {
        Answer::Work(work) => work.units,
        other => panic!("{other:?}"),
    };
    assert_eq!((units(), units()), (0, 1));
    assert_eq!(client.call(Request::Spin, LONG).unwrap(), Answer::Ok, "it goes on");
    let Answer::Work(work) = client.call(Request::Work, LONG).unwrap() else { panic!() };
    assert_eq!(work.units, 2);
    assert_eq!(client.call(Request::Rest, LONG).unwrap(), Answer::Ok);
    assert!(client.call(Request::Work, LONG).is_err());
}

#[test]
fn work_per_second_is_the_difference_over_time() {
    let work = |units, elapsed_us| Work { units, elapsed_us };
    assert!((work(10, 1_000_000).per_second(work(40, 1_500_000)) - 60.0).abs() < 1e-9);
    assert!(work(10, 7).per_second(work(10, 7)).abs() < 1e-9);
}

#[test]
fn a_call_is_answered_while_another_measures() {
    let servers = Arc::default();
    let (stream, _thread) = agent(&servers);
    let lines = br#"{"id":1,"request":{"tcp_rr":{"to":"127.0.0.1","port":7}}}
{"id":2,"request":"cpu"}
"#;
    let mut ids: Vec<_> =
        replies(&stream, lines, 2).into_iter().map(|reply| (reply.id, reply.outcome)).collect();
    ids.sort_by_key(|(id, _)| *id);
    assert_eq!(ids[0], (Some(1), Outcome::Started));
    assert_eq!(ids[1], (Some(2), Outcome::Done(Answer::Cpu(Cpu::default()))));
}

#[test]
fn the_end_of_the_channel_ends_servers_and_measurements() {
    let servers = Arc::default();
    let (stream, thread) = agent(&servers);
    let lines = br#"{"id":1,"request":{"serve":{}}}
{"id":2,"request":{"tcp_rr":{"to":"127.0.0.1","port":7}}}
"#;
    assert_eq!(replies(&stream, lines, 2).len(), 2);
    assert_eq!(servers.load(Ordering::SeqCst), 1);
    drop(stream);
    thread.join().unwrap();
    assert_eq!(servers.load(Ordering::SeqCst), 0);
}

#[test]
fn hello_ends_servers_and_measurements_of_the_predecessor() {
    let servers = Arc::default();
    let (stream, _thread) = agent(&servers);
    let lines = br#"{"id":1,"request":{"serve":{}}}
{"id":2,"request":{"tcp_rr":{"to":"127.0.0.1","port":7}}}
"#;
    replies(&stream, lines, 2);
    // Another caller on the same channel, after an incomplete line of the first.
    (&stream).write_all(br#"{"id":3,"requ"#).unwrap();
    let mut client = client(&stream).unwrap();
    assert_eq!(servers.load(Ordering::SeqCst), 0);
    assert!(client.call(Request::Cpu, LONG).is_ok());
}

#[test]
fn a_line_that_is_no_call_gets_an_error_and_the_next_is_read() {
    let servers = Arc::default();
    let (stream, _thread) = agent(&servers);
    let mut lines = b"\n\ngarbage \xff\0\n".to_vec();
    lines.extend(br#"{"id":1,"request":{"ping":{"to":"127.0.0.1","speed":9}}}"#);
    lines.push(b'\n');
    lines.extend(vec![b'['; MAX_LINE + 5]);
    lines.extend(b"\n{\"id\":5,\"request\":\"hello\"}\n");
    let writer = stream.try_clone().unwrap();
    let thread = thread::spawn(move || (&writer).write_all(&lines).unwrap());
    let outcomes = replies(&stream, b"", 4);
    thread.join().unwrap();
    for (reply, word) in outcomes.iter().zip(["not a call", "speed", "longer"]) {
        assert_eq!(reply.id, None);
        let Outcome::Failed(error) = &reply.outcome else { panic!("{reply:?}") };
        assert!(error.message.contains(word), "{}", error.message);
    }
    assert_eq!(outcomes[3].id, Some(5));
}

#[test]
fn a_caller_ignores_replies_to_others() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = thread::spawn(move || {
        let mut reader = BufReader::new(&theirs);
        let mut answer = |answer: Answer| {
            let mut line = String::new();
            while line.trim().is_empty() {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            let call: Call = serde_json::from_str(&line).unwrap();
            let stale = Reply { id: Some(call.id ^ 1), outcome: Outcome::Done(Answer::Ok) };
            let reply = Reply { id: Some(call.id), outcome: Outcome::Done(answer) };
            let text = |reply| serde_json::to_string(&reply).unwrap();
            (&theirs).write_all(format!("half\n{}\n\n{}\n", text(stale), text(reply)).as_bytes()).unwrap();
        };
        answer(Answer::Hello(Idle::default().hello()));
        answer(Answer::Cpu(Cpu { cpus: 3, ..Cpu::default() }));
    });
    let mut client = client(&ours).unwrap();
    let Answer::Cpu(cpu) = client.call(Request::Cpu, LONG).unwrap() else { panic!() };
    assert_eq!(cpu.cpus, 3);
    agent.join().unwrap();
    assert!(matches!(
        client.call(Request::Cpu, LONG),
        Err(ClientError::Broken { .. } | ClientError::Closed { .. })
    ));
}

#[test]
fn a_silent_agent_and_one_of_another_version_give_different_errors() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let end = || ours.try_clone().unwrap().into();
    let silent = Client::over("test", end(), end(), Duration::from_millis(1)).err().unwrap();
    assert!(matches!(silent, ClientError::Silent { .. }), "{silent}");
    assert!(silent.hint().contains("booting"));
    drop(theirs);

    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = thread::spawn(move || {
        let line = BufReader::new(&theirs).lines().map(Result::unwrap).find(|line| !line.is_empty()).unwrap();
        let call: Call = serde_json::from_str(&line).unwrap();
        let hello = Hello { protocol: PROTOCOL + 1, ..Idle::default().hello() };
        let reply = Reply { id: Some(call.id), outcome: Outcome::Done(Answer::Hello(hello)) };
        (&theirs).write_all(format!("{}\n", serde_json::to_string(&reply).unwrap()).as_bytes()).unwrap();
    });
    let other = client(&ours).err().unwrap();
    assert!(matches!(other, ClientError::Version { theirs, .. } if theirs == PROTOCOL + 1), "{other}");
    agent.join().unwrap();
}

#[test]
fn the_documented_messages_are_valid() {
    let call: Call = serde_json::from_str(
        r#"{"id":7,"request":{"ping":{"to":"10.0.0.2","size":256,"interval_us":1000,"count":4}}}"#,
    )
    .unwrap();
    let Request::Ping(ping) = call.request else { panic!() };
    assert_eq!((ping.count, ping.duration_ms), (Some(4), 10_000));
    let text = r#"{"id":7,"reply":{"done":{"latency":{"rtt_ns":[[41023,1],[41055,3]],"sent":4,"lost":0,"duplicates":0,"elapsed_us":3041}}}}"#;
    let reply: Reply = serde_json::from_str(text).unwrap();
    let Outcome::Done(Answer::Latency(latency)) = reply.outcome else { panic!() };
    assert_eq!(latency.rtt_ns.count(), 4);
    assert_eq!(
        serde_json::to_string(&endless()).unwrap(),
        r#"{"to":"127.0.0.1","port":7,"size":1,"duration_ms":1}"#
    );
}

#[test]
fn fairness_is_1_for_equal_sessions_and_1_over_n_for_one() {
    let of =
        |sessions: &[u64]| Throughput { bytes: 0, elapsed_us: 1, sessions: sessions.to_vec() }.fairness();
    assert_eq!((of(&[5; 4]), of(&[8, 0, 0, 0]), of(&[3, 1])), (Some(1.0), Some(0.25), Some(0.8)));
    assert_eq!((of(&[7]), of(&[0, 0])), (None, None));
}

proptest! {
    /// A caller that begins as the protocol requires gets an answer, whatever bytes came before.
    #[test]
    fn garbage_never_wedges_the_agent(garbage in proptest::collection::vec(any::<u8>(), 0..300)) {
        let servers = Arc::default();
        let (stream, thread) = agent(&servers);
        (&stream).write_all(&garbage).unwrap();
        prop_assert!(client(&stream).is_ok());
        drop(stream);
        thread.join().unwrap();
    }
}
