//! What an agent, which a guest may have replaced, answers to its caller: any lines, in any order,
//! with any numbers.
//!
//! Input: 1 byte for the questions, then the bytes of the agent. An input may leave out the
//! greeting, which nearly all would have in common. Calls have the ids 0, 1, 2 …

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use taut_bench::agent::protocol::{Answer, Check, PROTOCOL, Ping, Reply, Request};
use taut_bench::agent::{Client, ClientError};
use taut_bench::measure::latencies::Latencies;

use crate::input::Input;
use crate::{Budget, Target};

/// This target. Each histogram of an answer takes 200 KiB, and the checks make copies of it.
pub const TARGET: Target = Target { name: "agent", run, budget: Budget::of(200, 96) };

/// Longest input that the socket takes at once.
const MOST: usize = 64 << 10;
/// Time for an answer. All bytes are there at once, so nothing waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Calls after the greeting.
const CALLS: u64 = 4;

fn run(data: &[u8]) {
    let mut input = Input(data);
    let bits = input.u8();
    let rest = &input.0[..input.0.len().min(MOST)];
    let greeting = format!(
        "{{\"id\":0,\"reply\":{{\"done\":{{\"hello\":{{\"protocol\":{PROTOCOL},\"version\":\"\",\"kind\":\"guest\",\
         \"hostname\":\"\",\"kernel\":\"\"}}}}}}}}\n"
    );
    let bytes = if bits & 0x80 == 0 { [greeting.as_bytes(), rest].concat() } else { rest.to_vec() };
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    (&theirs).write_all(&bytes).expect("the socket has room");
    theirs.shutdown(Shutdown::Write).expect("a connected socket");
    let output = ours.try_clone().expect("a descriptor");

    let client = Client::with_ids("guest".to_owned(), ours.into(), output.into(), PATIENCE, 0);
    let mut client = match client {
        Ok(client) => client,
        Err(error) => return check_error(&error),
    };
    assert_eq!(client.hello().protocol, PROTOCOL);
    for call in 0..CALLS {
        let request = match bits >> call & 3 {
            0 => Request::Addresses,
            1 => Request::Ping(Ping {
                to: [10, 0, 0, 1].into(),
                size: 1,
                interval_us: 1,
                duration_ms: 1,
                count: None,
            }),
            2 => Request::Check(Check { profile: String::new() }),
            _ => Request::Work,
        };
        let mut begun = 0;
        match client.call_and_watch(request, PATIENCE, || begun += 1) {
            Ok(answer) => check_answer(&answer),
            Err(error) => {
                check_error(&error);
                if !matches!(error, ClientError::Failed { .. }) {
                    return;
                }
            }
        }
        assert!(begun <= bytes.len());
    }
}

/// All bytes are there, and then the connection has ended: nothing waits, and nothing fails.
fn check_error(error: &ClientError) {
    assert!(!matches!(error, ClientError::Silent { .. } | ClientError::Broken { .. }), "{error}");
    assert!(matches!(error, ClientError::Failed { .. }) || !error.hint().is_empty());
}

/// Checks that whoever reads the answer, or stores it as part of a report, gets numbers that make
/// sense.
fn check_answer(answer: &Answer) {
    match answer {
        Answer::Latency(latency) => check_latencies(&latency.rtt_ns),
        Answer::Probed(probed) => probed.iter().for_each(|probed| check_latencies(&probed.took_ns)),
        Answer::WakeUps(woken) => woken.iter().for_each(|woken| check_latencies(&woken.late_ns)),
        Answer::Throughput(throughput) => {
            let fairness = throughput.fairness();
            assert!(fairness.is_none_or(|fairness| (0.0..=1.000_001).contains(&fairness)), "{fairness:?}");
        }
        Answer::Work(work) => assert!(work.per_second(*work).abs() < f64::EPSILON),
        _ => {}
    }
    // Counts are clamped, so only what was read once is read again unchanged.
    let again = |answer: &Answer| {
        let reply = serde_json::json!({ "id": 1, "reply": { "done": answer } });
        let reply: Reply = serde_json::from_value(reply).expect("an answer that can be read again");
        match reply.outcome {
            taut_bench::agent::protocol::Outcome::Done(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    let once = again(answer);
    assert_eq!(again(&once), once);
}

fn check_latencies(latencies: &Latencies) {
    let quantiles = [0.0, 0.5, 0.99, 1.0].map(|quantile| latencies.quantile_us(quantile));
    assert!(quantiles.is_sorted() && quantiles.iter().all(|us| (0.0..=101e6).contains(us)), "{quantiles:?}");
    assert!((0.0..=1.0).contains(&latencies.chance_above(latencies)));
    let mut sum = latencies.clone();
    sum.add(latencies);
    assert_eq!(sum.count(), 2 * latencies.count());
}
