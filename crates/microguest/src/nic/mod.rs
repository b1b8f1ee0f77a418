//! A vNIC with its TCP/IP stack.

mod checksum;
pub(crate) mod device;
mod keep_alive;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Cidr};
use taut_bench::front_end::Link;

use crate::options::NicOptions;
use device::Device;

/// A vNIC: device, interface, sockets.
pub(super) struct Nic {
    mac: EthernetAddress,
    ip: Option<Ipv4Net>,
    gateway: Option<Ipv4Addr>,
    pub(super) device: Device,
    interface: Interface,
    pub(super) sockets: SocketSet<'static>,
    /// Connections that are being closed and belong to no task any more.
    closing: Vec<SocketHandle>,
    /// Local port of the next connection.
    next_port: u16,
}

impl Nic {
    pub(super) fn new(&NicOptions { mac, ip, gateway, mtu, .. }: &NicOptions) -> Self {
        let mut device = Device::new(mtu);
        let interface = interface(mac, ip, gateway, &mut device);
        Self {
            mac,
            ip,
            gateway,
            device,
            interface,
            sockets: SocketSet::new(vec![]),
            closing: vec![],
            next_port: FIRST_PORT,
        }
    }

    /// Connects a new link. Connections are kept.
    pub(super) fn connect(&mut self, link: Link) -> anyhow::Result<()> {
        self.device.connect(link)?;
        // An interface keeps the capabilities that its device had when it was created.
        self.interface = interface(self.mac, self.ip, self.gateway, &mut self.device);
        Ok(())
    }

    pub(super) fn mac(&self) -> EthernetAddress {
        self.mac
    }

    pub(super) fn ip(&self) -> Option<Ipv4Net> {
        self.ip
    }

    /// Replaces the IP address.
    pub(super) fn set_ip(&mut self, ip: Ipv4Net) {
        self.ip = Some(ip);
        set_ip(&mut self.interface, ip);
    }

    /// Returns whether the address is in this vNIC's network.
    pub(super) fn reaches(&self, to: Ipv4Addr) -> bool {
        self.ip.is_some_and(|ip| ip.contains(&to))
    }

    /// Returns whether this vNIC has a router to other networks.
    pub(super) fn has_gateway(&self) -> bool {
        self.gateway.is_some()
    }

    /// Begins a connection; none if that is impossible, such as to port 0.
    pub(super) fn connect_tcp(&mut self, to: Ipv4Addr, port: u16, buffer: usize) -> Option<SocketHandle> {
        let mut socket = tcp_socket(buffer);
        socket.connect(self.interface.context(), (to, port), self.next_port).ok()?;
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        Some(self.sockets.add(socket))
    }

    /// Begins to wait for one connection; none for port 0.
    pub(super) fn listen_tcp(&mut self, port: u16, buffer: usize) -> Option<SocketHandle> {
        let mut socket = tcp_socket(buffer);
        socket.listen(port).ok()?;
        Some(self.sockets.add(socket))
    }

    /// Returns a TCP socket of this vNIC.
    pub(super) fn tcp(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Closes a connection. Bytes that were sent still arrive.
    pub(super) fn close(&mut self, handle: SocketHandle) {
        self.tcp(handle).close();
        self.tcp(handle).set_timeout(Some(CLOSE_TIMEOUT));
        self.closing.push(handle);
    }

    /// Resets a connection, or stops waiting for one.
    pub(super) fn abort(&mut self, handle: SocketHandle) {
        self.tcp(handle).abort();
        self.closing.push(handle);
    }

    /// Receives, answers and sends. Returns true if a socket may have changed.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let Self { interface, device, sockets, .. } = self;
        device.send_left();
        interface.poll_maintenance(now);
        let mut changed = false;
        loop {
            match interface.poll_ingress_single(now, device, sockets) {
                PollIngressSingleResult::None => break,
                PollIngressSingleResult::PacketProcessed => {}
                PollIngressSingleResult::SocketStateChanged => changed = true,
            }
        }
        // In each turn, every socket sends one frame at most. Between turns there has to be room.
        while device.can_send() && interface.poll_egress(now, device, sockets) != PollResult::None {
            changed = true;
        }
        device.send_left();
        self.closing.retain(|&handle| {
            let closed = matches!(
                sockets.get::<tcp::Socket>(handle).state(),
                tcp::State::Closed | tcp::State::TimeWait
            );
            if closed {
                sockets.remove(handle);
            }
            !closed
        });
        changed
    }

    /// Returns the time until the stack's next timer.
    pub(super) fn poll_delay(&mut self, now: Instant) -> Option<Duration> {
        if !self.device.can_send() {
            return None;
        }
        self.interface.poll_delay(now, &self.sockets)
    }
}

/// First of the dynamic ports.
const FIRST_PORT: u16 = 49_152;
/// Time without a segment after which a connection asks its peer for an acknowledgement.
///
/// smoltcp 0.14 stops its retransmission timer when the peer's window was zero for a while, also if
/// it has unacknowledged bytes then. Three acknowledgements of the same byte let it repeat them.
/// See [`keep_alive`] for what becomes of the byte that it sends for that, and of the answer.
const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Time that a closed connection may wait for its peer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

fn tcp_socket(buffer: usize) -> tcp::Socket<'static> {
    let mut socket =
        tcp::Socket::new(tcp::SocketBuffer::new(vec![0; buffer]), tcp::SocketBuffer::new(vec![0; buffer]));
    socket.set_nagle_enabled(false);
    socket.set_keep_alive(Some(KEEP_ALIVE));
    socket
}

fn interface(
    mac: EthernetAddress,
    ip: Option<Ipv4Net>,
    gateway: Option<Ipv4Addr>,
    device: &mut Device,
) -> Interface {
    let mut config = Config::new(mac.into());
    config.random_seed =
        u64::from_be_bytes([0, 0, mac.0[0], mac.0[1], mac.0[2], mac.0[3], mac.0[4], mac.0[5]]);
    let mut interface = Interface::new(config, device, Instant::ZERO);
    if let Some(ip) = ip {
        set_ip(&mut interface, ip);
    }
    if let Some(gateway) = gateway {
        // The table of the new interface is empty, so there is room.
        let _ = interface.routes_mut().add_default_ipv4_route(gateway);
    }
    interface
}

fn set_ip(interface: &mut Interface, ip: Ipv4Net) {
    interface.update_ip_addrs(|addresses| {
        addresses.clear();
        // The list was just cleared, so there is room.
        let _ = addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(ip.addr(), ip.prefix_len())));
    });
}
