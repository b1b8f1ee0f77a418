//! Messages that are not those of the protocol, out of turn, in pieces, or without end.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use vhost::vhost_user::message::FrontendReq;

use super::front_end::{FrontEnd, event, header, state};
use super::{Act, Effect, claim};

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    let mut acts = malformed();
    acts.extend(counts_of_descriptors());
    acts.extend(orders());
    acts.extend(floods());
    acts
}

/// Headers and bodies that cannot be.
fn malformed() -> Vec<Act> {
    let bytes = |name: &str, words: &'static str, bytes: Vec<u8>| {
        Act::new(name, Effect::Ended(words), move |front: &mut FrontEnd, _| front.send_bytes(&bytes, &[]))
    };
    let request = |name: &str, words: &'static str, request: FrontendReq, body: Vec<u8>| {
        Act::new(name, Effect::Ended(words), move |front: &mut FrontEnd, _| {
            front.negotiate()?;
            front.send(request, &body, &[])
        })
    };
    let mut junk = vec![0xa5; 4096];
    junk[8..12].copy_from_slice(&16_u32.to_ne_bytes());
    vec![
        bytes(
            "a request of no protocol",
            "is not one of vhost-user",
            [9999_u32, 1, 0].map(u32::to_ne_bytes).concat(),
        ),
        bytes("bytes without sense", "is not one of vhost-user", junk),
        bytes(
            "another version of the protocol",
            "are not those of a version 1",
            header(FrontendReq::GET_FEATURES, 2, 0),
        ),
        bytes(
            "a reply instead of a request",
            "are not those of a version 1",
            header(FrontendReq::GET_FEATURES, 5, 0),
        ),
        bytes("a body of 4 GiB", "a body of", header(FrontendReq::SET_FEATURES, 1, u32::MAX as usize)),
        request("a body that is too short", "bytes instead of", FrontendReq::SET_FEATURES, vec![0; 7]),
        request("a body that is too long", "bytes instead of", FrontendReq::SET_VRING_NUM, vec![0; 9]),
        request("a body where none belongs", "bytes instead of", FrontendReq::GET_FEATURES, vec![0; 8]),
        request(
            "features that were not offered",
            "which were not offered",
            FrontendReq::SET_FEATURES,
            vec![0xff; 8],
        ),
        request(
            "protocol features that were not offered",
            "which were not offered",
            FrontendReq::SET_PROTOCOL_FEATURES,
            vec![0xff; 8],
        ),
        request("a request that was not offered", "was not offered", FrontendReq::SET_LOG_BASE, vec![0; 16]),
        request("a queue that does not exist", "named queue", FrontendReq::SET_VRING_NUM, state(255, 256)),
        request("a ring without entries", "cannot have 0 entries", FrontendReq::SET_VRING_NUM, state(0, 0)),
        request("a ring of three entries", "cannot have 3 entries", FrontendReq::SET_VRING_NUM, state(0, 3)),
        request(
            "a ring of 65,535 entries",
            "cannot have 65535 entries",
            FrontendReq::SET_VRING_NUM,
            state(0, 65535),
        ),
        request(
            "a ring of 4 billion entries",
            "out of range",
            FrontendReq::SET_VRING_NUM,
            state(0, u32::MAX),
        ),
        request(
            "a position behind the ring",
            "cannot start at",
            FrontendReq::SET_VRING_BASE,
            state(0, 70_000),
        ),
        request(
            "a ring that is enabled twice as much",
            "out of range",
            FrontendReq::SET_VRING_ENABLE,
            state(0, 2),
        ),
        request(
            "a status of nine bits",
            "out of range",
            FrontendReq::SET_STATUS,
            0x1ff_u64.to_ne_bytes().to_vec(),
        ),
    ]
}

/// Too many descriptors, or none.
fn counts_of_descriptors() -> Vec<Act> {
    let many = |name: &str, effect: Effect, request: FrontendReq, body: Vec<u8>, count: usize| {
        Act::new(name, effect, move |front: &mut FrontEnd, _| {
            front.negotiate()?;
            let event: OwnedFd = event()?;
            let fds: Vec<BorrowedFd<'_>> = (0..count).map(|_| event.as_fd()).collect();
            front.send(request, &body, &fds)
        })
    };
    let word = || 0_u64.to_ne_bytes().to_vec();
    let wrong = Effect::Ended("descriptors instead of");
    let too_many = Effect::Ended("descriptors in one message");
    vec![
        many("a kick without its descriptor", wrong, FrontendReq::SET_VRING_KICK, word(), 0),
        many("two descriptors for one kick", wrong, FrontendReq::SET_VRING_KICK, word(), 2),
        many("a descriptor with a question", wrong, FrontendReq::GET_FEATURES, Vec::new(), 1),
        many("33 descriptors in one message", too_many, FrontendReq::SET_VRING_CALL, word(), 33),
        many("253 descriptors in one message", too_many, FrontendReq::SET_VRING_CALL, word(), 253),
        Act::new("a descriptor with each byte", Effect::Ended("descriptors in one message"), |front, _| {
            let event = event()?;
            let message = header(FrontendReq::SET_FEATURES, 1, 64);
            for byte in message.iter().chain([0; 64].iter()) {
                if front.send_bytes(&[*byte], &[event.as_fd()]).is_err() {
                    break;
                }
            }
            Ok(())
        }),
    ]
}

/// Requests in another order than that of the protocol.
fn orders() -> Vec<Act> {
    vec![
        Act::new("a ring before everything else", Effect::Served, |front, _| {
            front.send(FrontendReq::SET_VRING_ENABLE, &state(0, 1), &[])?;
            front.send(FrontendReq::SET_VRING_KICK, &0_u64.to_ne_bytes(), &[event()?.as_fd()])?;
            front.send(FrontendReq::SET_VRING_NUM, &state(0, 256), &[])
        }),
        Act::new("the position of a ring that never ran", Effect::Served, |front, _| {
            front.send(FrontendReq::GET_VRING_BASE, &state(1, 0), &[])
        }),
        Act::new("other features while rings run", Effect::Served, |front, _| {
            front.set_up()?;
            let fewer = 1_u64 << 32 | 1 << 30;
            for features in [fewer, fewer | 1 << 29, fewer] {
                front.ask(FrontendReq::SET_FEATURES, &features.to_ne_bytes(), &[])?;
            }
            Ok(())
        }),
        Act::new("everything twice", Effect::Served, |front, _| {
            front.set_up()?;
            front.negotiate()?;
            front.share_memory()?;
            (0..2).try_for_each(|number| front.start(number, &front.queues[number as usize]))
        }),
        Act::new("a session that begins in the middle of a reset", Effect::Served, |front, _| {
            front.set_up()?;
            front.send(FrontendReq::RESET_OWNER, &[], &[])?;
            front.send(FrontendReq::SET_STATUS, &0_u64.to_ne_bytes(), &[])?;
            front.start(1, &front.queues[1])
        }),
    ]
}

/// Pieces, silence, and floods.
fn floods() -> Vec<Act> {
    vec![
        Act::new("half a header, and silence", Effect::Left, |front, _| {
            front.send_bytes(&header(FrontendReq::GET_FEATURES, 1, 0)[..6], &[])?;
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }),
        Act::new("half a body, and silence", Effect::Left, |front, _| {
            front.send_bytes(&[header(FrontendReq::SET_FEATURES, 1, 8), vec![0; 4]].concat(), &[])?;
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }),
        Act::new("a message byte by byte", Effect::Served, |front, _| {
            for byte in header(FrontendReq::GET_FEATURES, 1, 0) {
                front.send_bytes(&[byte], &[])?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }),
        Act::new("replies that nobody reads", Effect::Ended("does not read its replies"), |front, _| {
            let question = header(FrontendReq::GET_FEATURES, 1, 0).repeat(64);
            let mut written = 0;
            while front.stream.write_all(&question).is_ok() {
                written += 1;
            }
            claim(written > 1, "the fabric has not read the questions")
        }),
        Act::new("a front end that has gone before it is accepted", Effect::Left, |front, _| {
            (0..100).try_for_each(|_| front.another().map(drop))
        }),
        Act::new("front ends that wait behind another", Effect::Served, |front, _| {
            let waiting = (0..60).map(|_| front.another()).collect::<io::Result<Vec<_>>>()?;
            waiting.iter().try_for_each(|other| other.send(FrontendReq::GET_FEATURES, &[], &[]))
        }),
        Act::new("no word at all", Effect::Left, |_, _| Ok(())),
    ]
}
