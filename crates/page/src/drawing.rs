//! The drawing of a vSwitch, as in the vSphere Client: port groups and their ports on the left,
//! uplinks on the right, the switch between them.

use maud::{Markup, html};
use taut_api::link::Link;

use crate::text;

/// Width of the drawing.
const WIDTH: u32 = 760;
/// Height of a row.
const ROW: u32 = 22;
/// Space between two boxes, and around all.
const GAP: u32 = 12;
/// Width of the boxes on both sides.
const SIDE: u32 = 290;
/// Horizontal position of the switch.
const SWITCH: u32 = 365;
/// Width of the switch.
const SWITCH_WIDTH: u32 = 30;
/// Longest text in a box, in characters.
const LONGEST: usize = 36;

/// A vSwitch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Name.
    pub name: String,
    /// Port groups, each with its ports.
    pub groups: Vec<Group>,
    /// Uplinks.
    pub uplinks: Vec<End>,
}

/// A port group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name, with its VLAN.
    pub name: String,
    /// Address of its page.
    pub address: String,
    /// Ports.
    pub ports: Vec<End>,
}

/// A port or an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Text in the box.
    pub text: String,
    /// Address of its page, if it has one.
    pub address: Option<String>,
    /// State of its link; absent for a card of a VM that is off.
    pub link: Option<Link>,
}

/// Draws a vSwitch.
pub fn switch(switch: &Switch) -> Markup {
    let rows = |count: usize| (count.max(1) as u32) * ROW;
    let mut y = GAP;
    let mut groups = Vec::new();
    for group in &switch.groups {
        let height = ROW + rows(group.ports.len());
        groups.push((group, y, height));
        y += height + GAP;
    }
    let left = y.max(GAP + 2 * ROW + GAP);
    let right = GAP + ROW + rows(switch.uplinks.len()) + GAP;
    let height = left.max(right);
    let uplinks_at = WIDTH - SIDE;
    html! {
        // An image would hide the links in it from assistive technology.
        svg.switch role="group" width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}")) {
            title { "vSwitch " (switch.name) ": port groups on the left, uplinks on the right" }
            desc { "Each name leads to its page. The tables below have the same facts." }
            rect.bar x=(SWITCH) y=(GAP / 2) width=(SWITCH_WIDTH) height=(height - GAP) rx="3" {}
            @for (group, top, height) in &groups {
                rect.group x="1" y=(top) width=(SIDE) height=(height) rx="3" {}
                a href=(group.address) {
                    title { "Port group " (group.name) }
                    text.name x="10" y=(top + 15) { (short(&group.name)) }
                }
                @if group.ports.is_empty() { text.none x="10" y=(top + ROW + 15) { "no ports" } }
                @for (index, port) in group.ports.iter().enumerate() {
                    @let middle = top + ROW + (index as u32) * ROW + ROW / 2;
                    (end(port, 14, middle))
                    line.(wire(port.link)) x1=(SIDE + 1) x2=(SWITCH) y1=(middle) y2=(middle) {}
                }
            }
            rect.group x=(uplinks_at) y=(GAP) width=(SIDE - 1) height=(right - 2 * GAP) rx="3" {}
            text.name x=(uplinks_at + 9) y=(GAP + 15) { "Uplinks" }
            @if switch.uplinks.is_empty() {
                text.none x=(uplinks_at + 9) y=(GAP + ROW + 15) { "none: a private network" }
            }
            @for (index, uplink) in switch.uplinks.iter().enumerate() {
                @let middle = GAP + ROW + (index as u32) * ROW + ROW / 2;
                (end(uplink, uplinks_at + 13, middle))
                line.(wire(uplink.link)) x1=(SWITCH + SWITCH_WIDTH) x2=(uplinks_at) y1=(middle) y2=(middle) {}
            }
        }
    }
}

/// Draws the mark of a link and the text beside it. The marks differ in shape, not only in colour.
fn end(end: &End, x: u32, middle: u32) -> Markup {
    let text = html! { text x=(x + 12) y=(middle + 4) { (short(&end.text)) } };
    html! {
        @match end.link {
            Some(Link::Up) => circle.up cx=(x) cy=(middle) r="4.5" {},
            Some(Link::Down) => circle.down cx=(x) cy=(middle) r="4" {},
            Some(Link::Broken) => path.broken d=(format!("M{} {}l5 9h-10z", x, middle - 5)) {},
            None => line.down x1=(x - 4) x2=(x + 4) y1=(middle) y2=(middle) {},
        }
        @match &end.address {
            Some(address) => a href=(address) {
                title { (end.text) ", " (end.link.map_or("off", |link| text::link(link))) }
                (text)
            },
            None => (text),
        }
    }
}

/// Returns the class of the line to an end.
const fn wire(link: Option<Link>) -> &'static str {
    match link {
        Some(Link::Up) => "wire",
        _ => "loose",
    }
}

/// Cuts a text that is too long for its box. The table beside the drawing has all of it.
fn short(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}
