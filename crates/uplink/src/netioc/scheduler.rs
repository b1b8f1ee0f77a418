//! Chooses the port that may send next.

use super::calendar::Calendar;
use super::node::{Node, Port};
use super::rules::{Class, Rate, Rules};
use super::tag::{PerByte, Tag};

/// Time of transmission that is handed to an uplink before it has been used, in ns. It has to cover
/// the pauses between two looks at the uplink, and delays every frame of a reservation.
pub const AHEAD: u64 = 200_000;
/// Bytes of a usual turn.
pub const TURN_BYTES: u32 = 16 << 10;

/// Width of a bucket of real time: 2¹⁰ ns, less than a long frame at 10 Gbit/s.
const TIME_WIDTH: u32 = 10;
/// Width of a bucket of shares: 16 bytes of one share, 1600 bytes of 100 shares.
const SHARES_WIDTH: u32 = 4;
/// Number of classes. Ports have the numbers after them.
const CLASSES: usize = Class::ALL.len();

/// Answer of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Take frames from a port, and tell with [`Scheduler::sent`] what they were.
    Send(Turn),
    /// Ask again at this time in ns, or when a port is ready before.
    Wait(u64),
    /// No port has anything to send.
    Idle,
}

/// A port's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The port.
    pub port: Port,
    /// The port's next frame, and as many of the following ones as fit in these bytes on the wire
    /// together with it.
    pub bytes: u32,
    /// Cause of the turn.
    pub reason: Reason,
}

/// Cause of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The reservation of the port.
    PortReservation,
    /// The reservation of its class. Its share of the class chose the port.
    ClassReservation,
    /// Share of the port, and of its class.
    Shares,
}

/// The scheduler of one uplink. All times are in ns since any fixed point in time.
#[derive(Debug)]
pub struct Scheduler {
    /// Classes, then ports. A removed port leaves its place to the next new one.
    nodes: Vec<Node>,
    /// Nodes, by number, that do not send freely: they have a turn, or a limit concerns them. Kept
    /// apart, because each frame asks.
    held: Vec<bool>,
    free: Vec<Port>,
    /// Ports of each class that may send and have a reservation, by the time up to which it is
    /// served.
    reserved: [Calendar; CLASSES],
    /// Nodes that wait for their limit, by the time at which they may send.
    limited: Calendar,
    /// Classes that may send, by shares.
    classes: Line,
    /// Ports of each class that may send, by shares.
    ports: [Line; CLASSES],
    /// Time until which the uplink is busy with what it was handed, and with the turns that have
    /// begun.
    busy_until: Tag,
    /// Number of turns that have begun.
    begun: u32,
    /// Time of a byte on the uplink.
    byte: PerByte,
    turn_bytes: u32,
}

/// Nodes by shares.
#[derive(Debug)]
struct Line {
    nodes: Calendar,
    /// Place of the node that was served last. Nodes that come back begin there.
    served: Tag,
    /// Farthest place that a node has reached.
    farthest: Tag,
}

impl Line {
    fn new() -> Self {
        Self { nodes: Calendar::new(SHARES_WIDTH), served: Tag::default(), farthest: Tag::default() }
    }

    /// Notes that a node was served, from one place to another.
    fn serve(&mut self, from: Tag, to: Tag) {
        self.served = self.served.max(from);
        self.farthest = self.farthest.max(to);
        self.nodes.advance(self.served.ns());
    }

    /// Puts a node in its place, or takes it out.
    fn put(&mut self, number: u32, may_send: bool, place: Tag) {
        if may_send {
            self.nodes.put(number, place.ns());
        } else {
            self.nodes.remove(number);
        }
    }

    /// Begins anew: what a node has sent while nobody else wanted to is not held against it.
    fn restart(&mut self) {
        self.served = self.farthest;
        self.nodes.advance(self.served.ns());
    }
}

impl Scheduler {
    /// Returns the scheduler of an uplink without ports. `turn_bytes` is the length of a turn,
    /// [`TURN_BYTES`] as a rule: shorter turns are fairer, longer ones cost fewer decisions.
    pub fn new(speed: Rate, turn_bytes: u32) -> Self {
        Self {
            nodes: Class::ALL.iter().map(|class| Node::new(None, class.defaults())).collect(),
            held: vec![false; CLASSES],
            free: Vec::new(),
            reserved: std::array::from_fn(|_| Calendar::new(TIME_WIDTH)),
            limited: Calendar::new(TIME_WIDTH),
            classes: Line::new(),
            ports: std::array::from_fn(|_| Line::new()),
            busy_until: Tag::default(),
            begun: 0,
            byte: PerByte::at(speed),
            turn_bytes,
        }
    }

    /// Sets the speed of the uplink, and the length of the turns that begin from now on.
    pub fn set_speed(&mut self, speed: Rate, turn_bytes: u32) {
        (self.byte, self.turn_bytes) = (PerByte::at(speed), turn_bytes);
    }

    /// Sets the rules of a class.
    pub fn set_class(&mut self, class: Class, rules: Rules, now: u64) {
        let now = Tag::at(now);
        self.nodes[class as usize].set(rules, now);
        self.nodes[class as usize].resume(self.classes.served);
        self.settle_class(class as usize, now);
        for place in CLASSES..self.nodes.len() {
            if self.nodes[place].class == Some(class as u32) {
                self.note_limits(place, class as usize);
            }
        }
    }

    /// Notes whether a port, or its class, has a limit.
    fn note_limits(&mut self, port: usize, class: usize) {
        let is_bounded = self.nodes[port].is_limited() || self.nodes[class].is_limited();
        self.nodes[port].is_bounded = is_bounded;
        self.note_held(port);
    }

    /// Notes whether a port has a turn.
    fn set_turn(&mut self, port: Port, has_turn: bool) {
        self.nodes[port.index()].has_turn = has_turn;
        self.note_held(port.index());
    }

    fn note_held(&mut self, port: usize) {
        let Node { has_turn, is_bounded, .. } = self.nodes[port];
        self.held[port] = has_turn || is_bounded;
    }

    /// Adds a port without anything to send.
    pub fn add_port(&mut self, class: Class, rules: Rules) -> Port {
        let node = Node::new(Some(class as u32), rules);
        let port = self.free.pop().unwrap_or(Port::of(self.nodes.len() as u32));
        if port.index() < self.nodes.len() {
            self.nodes[port.index()] = node;
        } else {
            self.nodes.push(node);
            self.held.push(false);
        }
        self.note_limits(port.index(), class as usize);
        port
    }

    /// Sets the rules of a port.
    pub fn set_port(&mut self, port: Port, rules: Rules, now: u64) {
        let now = Tag::at(now);
        self.nodes[port.index()].set(rules, now);
        self.note_limits(port.index(), self.class_of(port));
        self.resume(port);
        self.settle(port, now);
    }

    /// Removes a port. A turn that it has is void: nothing of it may be told any more. The next
    /// port that is added may be given the same number.
    pub fn remove_port(&mut self, port: Port, now: u64) {
        let node = &mut self.nodes[port.index()];
        if std::mem::replace(&mut node.is_free, true) {
            return;
        }
        node.has_backlog = false;
        self.begun -= u32::from(node.has_turn);
        self.set_turn(port, false);
        self.settle(port, Tag::at(now));
        self.free.push(port);
    }

    /// Notes that a port has something to send. While the port has its turn, this is kept until
    /// [`Scheduler::sent`].
    pub fn ready(&mut self, port: Port, now: u64) {
        let node = &mut self.nodes[port.index()];
        node.is_ready_again = true;
        if node.has_turn || std::mem::replace(&mut node.has_backlog, true) {
            return;
        }
        let now = Tag::at(now);
        if self.begun == 0 && self.classes.nodes.is_empty() && self.busy_until <= now {
            // The uplink was idle.
            self.classes.restart();
            self.ports.iter_mut().for_each(Line::restart);
        }
        let class = self.class_of(port);
        self.nodes[port.index()].wake(now, self.ports[class].served);
        if self.ports[class].nodes.is_empty() {
            self.nodes[class].wake(now, self.classes.served);
        }
        self.settle(port, now);
    }

    /// Notes that a port waits with a frame of these bytes on the wire. The uplink counts as busy
    /// with all of it when the port's next turn begins. Otherwise turns that are each used for one
    /// long frame would together delay a reservation. If several queues of the port wait, the
    /// longest frame counts, because any of them may get the turn.
    pub fn expect(&mut self, port: Port, bytes: u32) {
        let node = &mut self.nodes[port.index()];
        node.next_frame = node.next_frame.max(bytes);
    }

    /// Returns whether a port may send without a turn: it has none, no limit concerns it, nobody
    /// waits for the uplink, and the uplink keeps up.
    #[inline]
    pub fn is_free(&self, port: Port, now: u64) -> bool {
        !self.is_held(port) && self.classes.nodes.is_empty() && self.busy_until <= Tag::at(now + AHEAD)
    }

    /// Notes what a port has sent freely, in bytes on the wire.
    #[inline]
    pub fn sent_freely(&mut self, bytes: u32, now: u64) {
        self.busy_until = self.busy_until.max(Tag::at(now)).after(bytes, self.byte);
    }

    /// Notes what a port has sent without a turn although a limit concerns it, in bytes on the
    /// wire.
    pub fn sent_without_turn(&mut self, port: Port, bytes: u32, now: u64) {
        self.sent_freely(bytes, now);
        for node in [port.index(), self.class_of(port)] {
            self.nodes[node].count_limited(bytes, Tag::at(now));
        }
    }

    /// Returns whether a port does not send freely: it has a turn, or a limit concerns it.
    #[inline]
    pub fn is_held(&self, port: Port) -> bool {
        self.held[port.index()]
    }

    /// Returns what to do now. A port has one turn at a time, until [`Scheduler::sent`]; others may
    /// have theirs meanwhile. The uplink counts as busy with the whole turn until it is told what
    /// was sent.
    pub fn next(&mut self, now: u64) -> Next {
        self.limited.advance(now);
        self.release(Tag::at(now));
        let Some((port, reason)) = self.choose(now) else {
            return self.limited.next().map_or(Next::Idle, Next::Wait);
        };
        let busy = self.busy_until.reached().saturating_sub(now);
        if busy > AHEAD {
            return Next::Wait(now + (busy - AHEAD));
        }
        let now = Tag::at(now);
        let node = &mut self.nodes[port.index()];
        let bytes = self.turn_bytes.max(std::mem::take(&mut node.next_frame));
        self.busy_until = self.busy_until.max(now).after(bytes, self.byte);
        self.begun += 1;
        (node.has_backlog, node.is_ready_again) = (false, false);
        self.set_turn(port, true);
        self.settle(port, now);
        Next::Send(Turn { port, bytes, reason })
    }

    /// Notes what a turn has sent, in bytes on the wire, and whether the port has more. A port that
    /// could not send what it has counts as one without: it is [`Scheduler::ready`] again later.
    pub fn sent(&mut self, turn: Turn, bytes: u32, has_more: bool, now: u64) {
        let now = Tag::at(now);
        let without = self.busy_until.less(turn.bytes, self.byte);
        self.busy_until = without.max(now).after(bytes, self.byte);
        self.begun -= 1;
        let Turn { port, reason, .. } = turn;
        let class = self.class_of(port);
        let [of_class, of_port] = self
            .nodes
            .get_disjoint_mut([class, port.index()])
            .expect("classes have other numbers than ports");
        of_class.count_limited(bytes, now);
        of_port.count_limited(bytes, now);
        match reason {
            Reason::PortReservation => {
                of_class.count_reserved_by_ports(bytes, now);
                of_port.count_reserved(bytes, now);
            }
            Reason::ClassReservation => of_class.count_reserved(bytes, now),
            Reason::Shares => {
                let from = of_class.tags.shares;
                of_class.count_shared(bytes);
                self.classes.serve(from, of_class.tags.shares);
            }
        }
        if reason != Reason::PortReservation {
            let from = of_port.tags.shares;
            of_port.count_shared(bytes);
            self.ports[class].serve(from, of_port.tags.shares);
        }
        of_port.has_backlog = has_more || of_port.is_ready_again;
        self.set_turn(port, false);
        self.settle(port, now);
    }

    fn class_of(&self, port: Port) -> usize {
        self.nodes[port.index()].class.expect("a port has a class") as usize
    }

    /// Chooses the port that may send.
    fn choose(&mut self, now: u64) -> Option<(Port, Reason)> {
        if let Some(found) = self.choose_reserved(now) {
            return Some(found);
        }
        let (class, _) = self.classes.nodes.first()?;
        let (port, _) = self.ports[class as usize].nodes.first().expect("the class may send");
        Some((Port::of(port), Reason::Shares))
    }

    /// Chooses the port or class whose reservation has waited longest.
    fn choose_reserved(&mut self, now: u64) -> Option<(Port, Reason)> {
        let mut longest = None;
        for class in 0..CLASSES {
            let node = &self.nodes[class];
            let Some((first, _)) = self.ports[class].nodes.first() else { continue };
            if !node.is_within_limit(Tag::at(now)) {
                continue;
            }
            if node.reserves() {
                let since = node.tags.reservation.reached();
                longest = earlier(longest, (since, Port::of(first), Reason::ClassReservation));
            }
            self.reserved[class].advance(now);
            if let Some((port, since)) = self.reserved[class].first() {
                longest = earlier(longest, (since, Port::of(port), Reason::PortReservation));
            }
        }
        longest.filter(|(since, ..)| *since <= now).map(|(_, port, reason)| (port, reason))
    }

    /// Lets nodes send again whose limit is reached by now.
    fn release(&mut self, now: Tag) {
        while let Some((number, at)) = self.limited.first()
            && at <= now.ns()
        {
            self.limited.remove(number);
            if self.nodes[number as usize].class.is_none() {
                self.nodes[number as usize].resume(self.classes.served);
                self.settle_class(number as usize, now);
            } else {
                self.resume(Port::of(number));
                self.settle(Port::of(number), now);
            }
        }
    }

    /// Gives a port that waited for its limit its place again, and its class if none of its others
    /// may send.
    fn resume(&mut self, port: Port) {
        let class = self.class_of(port);
        self.nodes[port.index()].resume(self.ports[class].served);
        if self.ports[class].nodes.is_empty() {
            self.nodes[class].resume(self.classes.served);
        }
    }

    /// Puts a port in its places, and its class.
    fn settle(&mut self, port: Port, now: Tag) {
        let class = self.class_of(port);
        let node = &self.nodes[port.index()];
        let is_within = node.is_within_limit(now);
        let may_send = node.has_backlog && is_within;
        self.ports[class].put(port.number(), may_send, node.tags.shares);
        if may_send && node.reserves() {
            self.reserved[class].put(port.number(), node.tags.reservation.reached());
        } else {
            self.reserved[class].remove(port.number());
        }
        if node.has_backlog && !is_within {
            self.limited.put(port.number(), node.tags.limit.reached());
        } else {
            self.limited.remove(port.number());
        }
        self.settle_class(class, now);
    }

    /// Puts a class in its places.
    fn settle_class(&mut self, class: usize, now: Tag) {
        let node = &self.nodes[class];
        let has_backlog = !self.ports[class].nodes.is_empty();
        let is_within = node.is_within_limit(now);
        self.classes.put(class as u32, has_backlog && is_within, node.tags.shares);
        if has_backlog && !is_within {
            self.limited.put(class as u32, node.tags.limit.reached());
        } else {
            self.limited.remove(class as u32);
        }
    }
}

/// A candidate of [`Scheduler::choose_reserved`]: the time since which it waits, and the turn.
type Waiting = (u64, Port, Reason);

/// Returns the candidate that waits for longer.
fn earlier(one: Option<Waiting>, other: Waiting) -> Option<Waiting> {
    one.filter(|(since, ..)| *since <= other.0).or(Some(other))
}
