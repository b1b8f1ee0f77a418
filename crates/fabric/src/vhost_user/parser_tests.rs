//! Requests from arbitrary and from malformed messages.

use proptest::prelude::*;

use super::super::wire::MAX_BODY;
use super::*;

fn event() -> ForeignFd {
    ForeignFd::own(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap())
}

fn parse(request: FrontendReq, body: &[u8], fds: usize) -> Result<Request, MessageError> {
    let header = Header { request, wants_ack: false, size: body.len() };
    Request::parse(&header, body, (0..fds).map(|_| event()).collect())
}

#[test]
fn ring_addresses_are_read_in_the_order_of_the_protocol() {
    let mut body = vec![0; 40];
    body[0] = 1;
    for (at, value) in [(8, 0x1000_u64), (16, 0x2000), (24, 0x3000)] {
        body[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    let Ok(Request::SetVringAddr { queue, desc, avail, used }) = parse(FrontendReq::SET_VRING_ADDR, &body, 0)
    else {
        panic!("not understood")
    };
    assert_eq!((queue, desc, used, avail), (1, 0x1000, 0x2000, 0x3000));
}

#[test]
fn a_wrong_number_of_descriptors_is_refused() {
    let word = 0_u64.to_ne_bytes();
    assert!(parse(FrontendReq::SET_VRING_KICK, &word, 1).is_ok());
    for (request, fds, wanted) in [
        (FrontendReq::SET_VRING_KICK, 0, 1),
        (FrontendReq::SET_VRING_CALL, 2, 1),
        (FrontendReq::SET_FEATURES, 1, 0),
    ] {
        let error = parse(request, &word, fds).unwrap_err();
        assert_eq!(error, MessageError::BadDescriptors { request, got: fds, wanted });
    }
    let none = NO_DESCRIPTOR.to_ne_bytes();
    let call = parse(FrontendReq::SET_VRING_CALL, &none, 0);
    assert!(matches!(call, Ok(Request::SetVringCall { queue: 0, fd: None })));
    assert!(parse(FrontendReq::SET_VRING_KICK, &none, 0).is_err());
}

#[test]
fn a_part_of_the_configuration_space_is_answered_whole_or_not_at_all() {
    let ask = |offset: u32, size: u32, room: usize| {
        let body = [[offset, size, 1].map(u32::to_ne_bytes).concat(), vec![0; room]].concat();
        parse(FrontendReq::GET_CONFIG, &body, 0)
    };
    let answer = |offset: u32, size: u32| match ask(offset, size, size as usize) {
        Ok(Request::GetConfig(part)) => part.of(&[3, 4, 5, 6, 7, 8, 9, 10]),
        other => panic!("{other:?}"),
    };
    let header = |offset: u32, size: u32| [offset, size, 1].map(u32::to_ne_bytes).concat();
    assert_eq!(answer(0, 8), [header(0, 8), vec![3, 4, 5, 6, 7, 8, 9, 10]].concat());
    assert_eq!(answer(6, 2), [header(6, 2), vec![9, 10]].concat());
    assert_eq!(answer(8, 0), header(8, 0));
    for (offset, size) in [(0, 9), (7, 2), (9, 0), (8, 1), (u32::MAX, 1), (u32::MAX, 256)] {
        assert!(answer(offset, size).is_empty(), "{size} bytes at {offset}");
    }
    let request = FrontendReq::GET_CONFIG;
    assert_eq!(ask(0, 257, 257).unwrap_err(), MessageError::OutOfRange { request, value: 257 });
    assert_eq!(ask(0, 8, 7).unwrap_err(), MessageError::BadLength { request, got: 19, wanted: 20 });
    assert_eq!(ask(0, 0, 1).unwrap_err(), MessageError::BadLength { request, got: 13, wanted: 12 });
    let short = parse(request, &[0; 11], 0).unwrap_err();
    assert_eq!(short, MessageError::BadLength { request, got: 11, wanted: 12 });
    assert!(matches!(parse(FrontendReq::SET_CONFIG, &[0; 12], 0), Ok(Request::SetConfig)));
}

#[test]
fn a_memory_table_without_regions_is_refused() {
    let error = parse(FrontendReq::SET_MEM_TABLE, &[0; 8], 0).unwrap_err();
    assert_eq!(error, MessageError::OutOfRange { request: FrontendReq::SET_MEM_TABLE, value: 0 });
}

#[test]
fn a_request_that_was_not_offered_is_named_in_the_error() {
    let error = parse(FrontendReq::SET_LOG_BASE, &[0; 16], 1).unwrap_err();
    assert_eq!(error, MessageError::NotOffered(FrontendReq::SET_LOG_BASE));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_request_or_an_error(
        header in prop::array::uniform12(any::<u8>()),
        code in 0_u32..50,
        flags in prop::sample::select(vec![1_u32, 9, 0, 5]),
        body in prop::collection::vec(any::<u8>(), 0..MAX_BODY),
        fds in 0_usize..4,
    ) {
        let _ = Header::parse(&header);
        let mut plausible = header;
        plausible[..4].copy_from_slice(&code.to_ne_bytes());
        plausible[4..8].copy_from_slice(&flags.to_ne_bytes());
        plausible[8..].copy_from_slice(&(body.len() as u32).to_ne_bytes());
        if let Ok(header) = Header::parse(&plausible) {
            prop_assert_eq!(header.size, body.len());
            let _ = Request::parse(&header, &body, (0..fds).map(|_| event()).collect());
        }
    }

    #[test]
    fn a_memory_table_holds_only_regions_that_do_not_wrap_around(
        count in 1_usize..6,
        words in prop::collection::vec(any::<u64>(), 24),
    ) {
        let mut body = vec![0; 8];
        body[0] = count as u8;
        body.extend(words.iter().take(4 * count).flat_map(|w| w.to_ne_bytes()));
        if let Ok(Request::SetMemTable(regions)) = parse(FrontendReq::SET_MEM_TABLE, &body, count) {
            for (region, _) in regions {
                prop_assert!(region.size > 0);
                prop_assert!(region.guest_addr.checked_add(region.size).is_some());
                prop_assert!(region.user_addr.checked_add(region.size).is_some());
            }
        }
    }
}
