use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::sockopt::socket_oobinline;
use taut_api::fabric::PortId;
use taut_api::fabric::config::FrontEndRules;

use super::super::device::{Ring, RingSetup, StartError};
use super::super::wire::{CONFIG_HEADER, HEADER};
use super::*;

/// A device without rings, but with a configuration space.
#[derive(Debug)]
struct ConfigOnly(Vec<u8>);

impl Device for ConfigOnly {
    fn id(&self) -> PortId {
        PortId(1)
    }

    fn queues(&self) -> usize {
        2
    }

    fn offered(&self) -> u64 {
        taut_virtq::features::VERSION_1 | taut_virtq::features::PROTOCOL_FEATURES
    }

    fn config_space(&self) -> &[u8] {
        &self.0
    }

    fn runs(&self, _: QueueIdx) -> bool {
        false
    }

    fn start_ring(&self, queue: QueueIdx, _: Ring) -> Result<(), StartError> {
        panic!("no request set up ring {queue}")
    }

    fn stop_ring(&self, _: QueueIdx) -> Option<u16> {
        None
    }

    fn set_call(&self, _: QueueIdx, _: Option<Arc<EventFd>>) {}

    fn interrupt(&self, _: QueueIdx) {}

    fn position_in_memory(&self, _: QueueIdx, _: &RingSetup) -> Option<u16> {
        None
    }
}

/// A session on such a device, and the front end's end of its connection.
fn session(config_space: Vec<u8>) -> (Session, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (
        Session::new(
            ForeignFd::own(theirs.into()),
            Arc::new(ConfigOnly(config_space)),
            FrontEndRules::default(),
        ),
        ours,
    )
}

/// Sends a request with acknowledgement, carries it out, and returns the answer with its header.
fn ask(
    (session, front_end): &mut (Session, UnixStream),
    request: FrontendReq,
    body: &[u8],
) -> Result<Vec<u8>, SessionError> {
    let header = [u32::from(request), 9, body.len() as u32].map(u32::to_ne_bytes).concat();
    front_end.write_all(&[&header, body].concat()).unwrap();
    let (header, request) = session.receive()?.unwrap();
    let reply = session.apply(&header, request)?;
    session.reply(&reply)?;
    let mut answer = vec![0; 1024];
    let got = front_end.read(&mut answer).unwrap();
    answer.truncate(got);
    Ok(answer)
}

fn reply(request: FrontendReq, body: &[u8]) -> Vec<u8> {
    [&[u32::from(request), 5, body.len() as u32].map(u32::to_ne_bytes).concat(), body].concat()
}

fn part(offset: u32, contents: &[u8]) -> Vec<u8> {
    [&[offset, contents.len() as u32, 0].map(u32::to_ne_bytes).concat(), contents].concat()
}

#[test]
fn a_configuration_space_can_be_read_and_not_written() {
    let config = VhostUserProtocolFeatures::CONFIG.bits();
    let acknowledges = VhostUserProtocolFeatures::REPLY_ACK.bits();
    let mut both = session(42_u64.to_le_bytes().to_vec());
    let offered = ask(&mut both, FrontendReq::GET_PROTOCOL_FEATURES, &[]).unwrap();
    let offered = u64::from_ne_bytes(*offered.last_chunk().unwrap());
    assert_eq!(offered & (config | acknowledges), config | acknowledges);
    ask(&mut both, FrontendReq::SET_PROTOCOL_FEATURES, &(config | acknowledges).to_ne_bytes()).unwrap();

    let request = FrontendReq::GET_CONFIG;
    let whole = ask(&mut both, request, &part(0, &[0; 8])).unwrap();
    assert_eq!(whole, reply(request, &part(0, &42_u64.to_le_bytes())));
    let last = ask(&mut both, request, &part(7, &[9])).unwrap();
    assert_eq!(last, reply(request, &part(7, &[0])));
    for outside in [part(1, &[0; 8]), part(0, &[0; 16]), part(u32::MAX, &[0; 8])] {
        assert_eq!(
            ask(&mut both, request, &outside).unwrap(),
            reply(request, &[]),
            "an error is an empty body"
        );
    }

    let write = part(0, &43_u64.to_le_bytes());
    let refused = ask(&mut both, FrontendReq::SET_CONFIG, &write).unwrap();
    assert_eq!(refused, reply(FrontendReq::SET_CONFIG, &1_u64.to_ne_bytes()));
    let unchanged = ask(&mut both, request, &part(0, &[0; 8])).unwrap();
    assert_eq!(unchanged[HEADER_AND_PART..], 42_u64.to_le_bytes());
}

const HEADER_AND_PART: usize = HEADER + CONFIG_HEADER;

#[test]
fn a_device_without_a_configuration_space_does_not_offer_one() {
    let mut both = session(Vec::new());
    let offered = ask(&mut both, FrontendReq::GET_PROTOCOL_FEATURES, &[]).unwrap();
    let offered = u64::from_ne_bytes(*offered.last_chunk().unwrap());
    assert_eq!(offered & VhostUserProtocolFeatures::CONFIG.bits(), 0);
    for request in [FrontendReq::GET_CONFIG, FrontendReq::SET_CONFIG] {
        let error = ask(&mut both, request, &part(0, &[0; 8])).unwrap_err();
        assert!(error.to_string().ends_with(&format!("{request:?} was not offered")), "{error}");
    }
}

#[test]
fn a_session_that_an_earlier_version_began_keeps_urgent_bytes() {
    let (begun, _front_end) = session(Vec::new());
    let socket = begun.connection.as_fd().try_clone_to_owned().unwrap();
    let record = begun.record().clone();
    drop(begun);
    assert!(!socket_oobinline(&socket).unwrap());
    let again = socket.try_clone().unwrap();
    let (device, rules) = (Arc::new(ConfigOnly(Vec::new())), FrontEndRules::default());
    let _resumed = Session::resume(record, vec![ForeignFd::own(again)], device, rules).unwrap();
    assert!(socket_oobinline(&socket).unwrap());
}
