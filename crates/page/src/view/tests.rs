//! Snapshots of each view, and rules that hold for all of them.

mod samples;
mod tags;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::role::Role;
use taut_api::statistics::{Period, Series};
use taut_api::{ApiError, Name};

use super::{audit, events, guide, host, login, networks, port, portgroup, process, sockets, vm, vms};
use crate::asset::{self, Asset};
use crate::form::{Fields, fields_of};
use crate::frame::Frame;
use crate::guide::Document;
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
        series: Some(read(samples::SERIES)),
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
        series: Some(Series { points: Vec::new(), ..read(samples::SERIES) }),
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
        checks: Ok(read(samples::CHECKS)),
    };
    insta::assert_snapshot!(checked(&host::page(&frame(Role::View), &view)));
}

#[test]
fn a_vm_is_explained() {
    let vms: Vec<taut_api::route::Vm> = read(samples::VMS);
    let times: Vec<_> = read(samples::TIMES);
    let [_, vm] = <[_; 2]>::try_from(vms).unwrap();
    let view = vm::Machine {
        vm,
        statistics: times.into_iter().nth(1),
        series: Some(read(samples::VM_SERIES)),
        period: Period::USUAL,
    };
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
fn a_host_without_checks_has_a_page() {
    let error = ApiError::new(ErrorKind::Unavailable, "no /sys", "mount it");
    let view = host::Host {
        info: read(samples::HOST),
        tune: read(samples::TUNE),
        daemon: read(samples::DAEMON),
        vms: Vec::new(),
        checks: Err(error),
    };
    let page = host::page(&frame(Role::View), &view);
    tags::check(&page);
    assert!(page.contains("no /sys") && page.contains("href=\"/reasons#refusal-unavailable\""));
}

#[test]
fn events_are_listed_from_the_newest_on() {
    let all: Vec<_> = read(samples::EVENTS);
    let filter = events::Filter { least: Level::Warning, newest: 2 };
    insta::assert_snapshot!(checked(&events::page(&frame(Role::View), &all, filter)));
    assert_eq!((events::level("error"), events::level("x")), (Some(Level::Error), None));
}

#[test]
fn long_text_of_strangers_is_cut() {
    let mut all: Vec<taut_api::event::Event> = read(samples::EVENTS);
    all[0].message = "\u{202e}x".repeat(100_000);
    all[0].subject = "vm/".to_owned() + &"y".repeat(100_000);
    let page = events::page(&frame(Role::View), &all, events::Filter::default());
    tags::check(&page);
    assert!(page.len() < 20_000 && !page.contains('\u{202e}'), "{}", page.len());
    let mut view = list(vms::Order::Name);
    view.statistics[2].name = "\u{202e}z".repeat(60_000);
    view.statistics.extend((0..2000).map(|_| view.statistics[2].clone()).collect::<Vec<_>>());
    let page = vms::page(&frame(Role::View), &view);
    tags::check(&page);
    assert!(page.len() < 600_000 && !page.contains('\u{202e}'), "{}", page.len());
    assert!(page.contains("The first 500 are listed."));
}

#[test]
fn vms_that_wait_are_on_top_with_the_reason() {
    let view = list(vms::Order::Name);
    let of = |view: &vms::Vms| {
        let page = vms::page(&frame(Role::View), view);
        tags::check(&page);
        let (_, rest) = page.split_once("VMs that wait</h2>").unwrap();
        rest.split_once("</section>").unwrap().0.to_owned()
    };
    assert!(of(&view).contains("No VM waited"), "{}", of(&view));
    let mut view = view;
    view.statistics[1].vcpus[0].ready_percent = 30.0;
    view.statistics[2].throttled_percent = Some(60.0);
    view.statistics[2].name = "other".to_owned();
    let waiting = of(&view);
    let at = |text: &str| waiting.find(text).unwrap_or_else(|| panic!("{text}: {waiting}"));
    assert!(at("/processes/99?period=5m") < at("/vms/db1?period=5m"), "the longest wait first");
    assert!(at("/reasons#wait-throttled") < at("/reasons#wait-ready"));
    assert!(!waiting.contains("web1"));
    view.statistics.extend((0..12).map(|_| view.statistics[2].clone()).collect::<Vec<_>>());
    assert_eq!(of(&view).matches("<tr>").count(), 11, "ten, and the head");
    assert!(of(&view).contains("4 more VMs"));
}

#[test]
fn a_vm_of_another_program_has_a_page() {
    let times: Vec<taut_api::statistics::VmStatistics> = read(samples::TIMES);
    let statistics = times.into_iter().nth(2).unwrap();
    let series = Some(read(samples::VM_SERIES));
    let view = process::Foreign { pid: 99, statistics, series, period: Period::USUAL };
    insta::assert_snapshot!(checked(&process::page(&frame(Role::View), &view)));
}

fn group(refused: Option<(Fields, ApiError)>) -> portgroup::Group {
    portgroup::Group {
        group: read::<Vec<_>>(samples::PORTGROUPS).remove(2),
        vswitch: read::<Vec<_>>(samples::VSWITCHES).remove(0),
        ports: read(samples::PORTS),
        vms: read(samples::VMS),
        statistics: read(samples::STATISTICS),
        period: Period::USUAL,
        refused,
        changed: false,
    }
}

#[test]
fn a_port_group_has_its_ports_and_the_form() {
    insta::assert_snapshot!(checked(&portgroup::page(&frame(Role::Define), &group(None))));
    let error = ApiError::new(ErrorKind::Changed, "somebody else", "send it again");
    let sent = Fields::from([("receive_average".to_owned(), "\"><script>".to_owned())]);
    let page = portgroup::page(&frame(Role::Define), &group(Some((sent, error))));
    tags::check(&page);
    assert!(page.contains("value=\"&quot;&gt;&lt;script&gt;\"") && page.contains("autofocus"));
    let closed = portgroup::page(&frame(Role::View), &group(None));
    assert!(closed.contains("<fieldset disabled"), "{closed}");
}

#[test]
fn pages_of_the_guide_are_pages() {
    for document in [Document::Reasons, Document::Checks] {
        let page = guide::page(&Frame::default(), document);
        tags::check(&page);
        assert!(page.contains("href=\"/reasons\"") && page.contains("href=\"/checks\""));
    }
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

#[test]
fn the_log_in_page_tells_nothing_about_the_host() {
    let page = checked(&login::page(None));
    assert!(!page.contains("esx1") && !page.contains("user "), "{page}");
    let error = ApiError::new(ErrorKind::Unauthenticated, "this token is not valid", "ask for another one");
    let again = checked(&login::page(Some(&error)));
    assert!(again.contains("role=\"alert\"") && again.contains("this token is not valid"), "{again}");
    insta::assert_snapshot!(page);
}

#[test]
fn who_has_logged_in_can_log_out() {
    let mut logged_in = Frame { user: "token `ci`".to_owned(), can_log_out: true, ..frame(Role::View) };
    let page = checked(&vms::page(&logged_in, &list(vms::Order::Name)));
    assert!(page.contains("action=\"/logout\"") && page.contains("token `ci`, role"), "{page}");
    logged_in.can_log_out = false;
    assert!(!vms::page(&logged_in, &list(vms::Order::Name)).contains("/logout"));
}
