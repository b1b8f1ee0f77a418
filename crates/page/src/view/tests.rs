//! Snapshots of each view, and rules that hold for all of them.

mod samples;
mod tags;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::role::Role;
use taut_api::statistics::Period;
use taut_api::{ApiError, Name};

use super::{audit, events, host, networks, port, sockets, vm, vms};
use crate::asset::{self, Asset};
use crate::form::fields_of;
use crate::frame::Frame;
use samples::{frame, read};

/// Checks the rules for all pages, and makes a snapshot's text: in lines, and without the hashes of
/// assets.
fn checked(page: &str) -> String {
    tags::check(page);
    let assets = [asset::STYLE, asset::SCRIPT, asset::ICON];
    let without = |page: String, asset: &Asset| page.replace(&asset.name(), "ASSET");
    assets.iter().fold(page.replace("><", ">\n<"), without)
}

fn list(order: vms::Order) -> vms::Vms {
    vms::Vms { vms: read(samples::VMS), statistics: read(samples::TIMES), period: Period::USUAL, order }
}

fn card() -> port::Port {
    let mut vms: Vec<taut_api::route::Vm> = read(samples::VMS);
    port::Port {
        owner: "vm/web1/nic0".to_owned(),
        port: read::<Vec<_>>(samples::PORTS).into_iter().next(),
        statistics: read::<Vec<_>>(samples::STATISTICS).into_iter().next(),
        period: Period::USUAL,
        card: Some((vms.remove(0), 0)),
        series: Some(port::Series {
            step_ms: 150_000,
            receive: vec![(1_795_902_540_000, 1e6), (1_795_902_690_000, 3e6), (1_795_902_840_000, 2e6)],
            transmit: vec![(1_795_902_540_000, 0.0), (1_795_902_840_000, 5e5)],
        }),
        refused: None,
        changed: false,
    }
}

#[test]
fn vms_are_listed() {
    insta::assert_snapshot!(checked(&vms::page(&frame(Role::Admin), &list(vms::Order::Name))));
}

#[test]
fn vms_are_sorted_by_ready_time() {
    let page = vms::page(&frame(Role::View), &list(vms::Order::Ready));
    let at = |name: &str| page.find(&format!("href=\"/vms/{name}\"")).unwrap();
    assert!(at("db1") < at("web1"), "db1 waits longer");
    let by_name = vms::page(&frame(Role::View), &list(vms::Order::Name));
    assert!(by_name.find("/vms/db1\"").unwrap() < by_name.find("/vms/web1\"").unwrap());
}

#[test]
fn a_card_has_a_network_page() {
    insta::assert_snapshot!(checked(&port::page(&frame(Role::Define), &card())));
}

#[test]
fn a_viewer_sees_the_form_and_cannot_use_it() {
    let page = port::page(&frame(Role::View), &card());
    tags::check(&page);
    assert_eq!(page.matches("<fieldset disabled").count(), 2);
    assert!(page.contains("they need the role define"));
    assert!(!port::page(&frame(Role::Define), &card()).contains("<fieldset disabled"));
}

#[test]
fn a_refused_form_keeps_what_was_written() {
    let mut view = card();
    let mut fields = fields_of(&view.card.as_ref().unwrap().0.spec.vm.nics[0].shaping);
    fields.insert("receive_average".to_owned(), "\"><script>alert(1)</script>".to_owned());
    let error = ApiError::new(ErrorKind::Invalid, "Receive: `<b>` cannot be read", "write a number");
    view.refused = Some((fields, error));
    let page = port::page(&frame(Role::Define), &view);
    tags::check(&page);
    assert!(page.contains("value=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\""), "{page}");
    assert!(page.contains("role=\"alert\"") && page.contains("&lt;b&gt;") && !page.contains("<script>"));
}

#[test]
fn a_port_without_anything_has_a_page() {
    let view = port::Port {
        owner: "netns/<x>".to_owned(),
        port: None,
        statistics: None,
        card: None,
        series: Some(port::Series::default()),
        ..card()
    };
    let page = port::page(&frame(Role::Admin), &view);
    tags::check(&page);
    assert!(page.contains("netns/&lt;x&gt;") && page.contains("No frame of this port was dropped"));
}

#[test]
fn vswitches_are_drawn() {
    let view = networks::Networks {
        vswitches: read(samples::VSWITCHES),
        portgroups: read(samples::PORTGROUPS),
        ports: read(samples::PORTS),
        uplinks: read(samples::UPLINKS),
        vms: read(samples::VMS),
    };
    insta::assert_snapshot!(checked(&networks::page(&frame(Role::View), &view)));
}

#[test]
fn pcpus_have_owners() {
    let view = host::Host {
        info: read(samples::HOST),
        tune: read(samples::TUNE),
        daemon: read(samples::DAEMON),
        vms: read(samples::VMS),
    };
    insta::assert_snapshot!(checked(&host::page(&frame(Role::View), &view)));
}

#[test]
fn a_vm_is_explained() {
    let vms: Vec<taut_api::route::Vm> = read(samples::VMS);
    let times: Vec<_> = read(samples::TIMES);
    let [_, vm] = <[_; 2]>::try_from(vms).unwrap();
    let view = vm::Machine { vm, statistics: times.into_iter().nth(1), period: Period::USUAL };
    insta::assert_snapshot!(checked(&vm::page(&frame(Role::View), &view)));
}

#[test]
fn sockets_are_listed() {
    let page = sockets::page(
        &frame(Role::View),
        &read::<Vec<_>>(samples::VMS),
        &read::<Vec<_>>(samples::CONNECTIONS),
    );
    insta::assert_snapshot!(checked(&page));
}

#[test]
fn events_are_listed_from_the_newest_on() {
    let all: Vec<_> = read(samples::EVENTS);
    insta::assert_snapshot!(checked(&events::page(&frame(Role::View), &all, Level::Info)));
    let warnings = events::page(&frame(Role::View), &all, Level::Warning);
    assert!(!warnings.contains("vm.started") && warnings.contains("vm.died"));
    assert_eq!((events::level("error"), events::level("x")), (Some(Level::Error), None));
}

#[test]
fn the_audit_record_is_listed() {
    let entries: Vec<_> = read(samples::AUDIT);
    insta::assert_snapshot!(checked(&audit::page(&frame(Role::Admin), &entries, false)));
}

#[test]
fn an_error_is_a_page() {
    let error =
        ApiError::new(ErrorKind::NotFound, "there is no port `<i>`", "the list shows those that exist");
    insta::assert_snapshot!(checked(&Frame::default().error(404, &error)));
}

#[test]
fn the_longest_names_are_shown_in_full_beside_the_drawing() {
    let name: Name = "n".repeat(63).parse().unwrap();
    let mut view = networks::Networks {
        vswitches: read(samples::VSWITCHES),
        portgroups: read(samples::PORTGROUPS),
        ports: Vec::new(),
        uplinks: Vec::new(),
        vms: Vec::new(),
    };
    view.portgroups[0].name = name.clone();
    let page = networks::page(&frame(Role::View), &view);
    assert!(page.contains(name.as_str()) && page.contains(&format!("{}…", "n".repeat(35))));
}
