//! Requests of a vhost-user front end: header and body, with some number of descriptors.
//!
//! Input: 1 byte with the number of descriptors, then messages in a row, each a header of 12 bytes
//! and its body.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use taut_api::fabric::ForeignFd;
use taut_fabric::vhost_user::message::{Header, Request};
use taut_fabric::vhost_user::wire::{CONFIG_HEADER, HEADER, MAX_BODY, MAX_CONFIG};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "message", run, budget: Budget::of(50, 4) };

/// Most messages of one input.
const MESSAGES: usize = 8;

thread_local! {
    static FILE: OwnedFd = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let descriptors = usize::from(input.u8() % 4);
    for _ in 0..MESSAGES {
        if input.is_empty() {
            return;
        }
        let Ok(header) = Header::parse(&input.array::<HEADER>()) else { return };
        assert!(header.size <= MAX_BODY);
        let body = input.slice(header.size);
        let fds = || FILE.with(|file| file.try_clone().expect("a descriptor"));
        match Request::parse(&header, body, (0..descriptors).map(|_| ForeignFd::own(fds())).collect()) {
            Ok(request) => check(&request, descriptors),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Checks what the session relies on.
fn check(request: &Request, descriptors: usize) {
    match request {
        Request::SetMemTable(regions) => {
            assert_eq!(regions.len(), descriptors);
            for (region, _) in regions {
                assert!(region.size > 0);
                for start in [region.guest_addr, region.user_addr, region.file_offset] {
                    assert!(start.checked_add(region.size).is_some());
                }
            }
        }
        Request::AddMemReg(..) | Request::SetVringKick { .. } => assert_eq!(descriptors, 1),
        Request::SetVringCall { fd, .. } | Request::SetVringErr { fd, .. } => {
            assert_eq!(fd.is_some(), descriptors == 1);
        }
        Request::RemMemReg(_) => {}
        Request::GetConfig(part) => {
            assert!(part.size as usize <= MAX_CONFIG);
            let told = part.of(&[0x5a; 8]);
            assert!(told.is_empty() || told.len() == CONFIG_HEADER + part.size as usize);
        }
        _ => assert_eq!(descriptors, 0),
    }
}
