//! Options of a microguest's vNICs and vsock device, as the command line gives them.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::Ipv4Net;
use smoltcp::wire::EthernetAddress;
use taut_virtq::socket_header::MAX_PAYLOAD;

/// A vNIC, written `socket=PATH,mac=MAC`, with `ip=A/P`, `gateway=A`, `rx=N`, `tx=N`,
/// `offloads=on|off`, `packed=on|off`, `in-order=on|off` and `mtu=N` after further commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicOptions {
    /// vhost-user socket to listen on: a path, or `fd:NUMBER` of an inherited one.
    pub socket: PathBuf,
    /// MAC address.
    pub mac: EthernetAddress,
    /// IP address at start. The agent can change it.
    pub ip: Option<Ipv4Net>,
    /// Router to other networks.
    pub gateway: Option<Ipv4Addr>,
    /// Entries of the receive ring, a power of two.
    pub rx: u16,
    /// Entries of the transmit ring, a power of two.
    pub tx: u16,
    /// Ask for checksum and segmentation offloads and mergeable buffers.
    pub offloads: bool,
    /// Ask for packed rings.
    pub packed: bool,
    /// Ask for buffers to be used in order.
    pub in_order: bool,
    /// Bytes of the longest packet, without the Ethernet header.
    pub mtu: u16,
}

impl FromStr for NicOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut socket, mut mac, mut ip, mut gateway) = (None, None, None, None);
        let (mut rx, mut tx) = (256, 256);
        let (mut offloads, mut packed, mut in_order) = (true, false, false);
        let mut mtu = 1500;
        for field in text.split(',') {
            let (key, value) = field.split_once('=').ok_or_else(|| format!("`{field}` is not KEY=VALUE"))?;
            match key {
                "socket" => socket = Some(PathBuf::from(value)),
                "mac" => {
                    mac = Some(value.parse().map_err(|()| format!("`{value}` is not an Ethernet address"))?);
                }
                "ip" => {
                    let bad =
                        |_| format!("`{value}` is not an IPv4 address with prefix: write it as 10.0.0.1/24");
                    ip = Some(value.parse().map_err(bad)?);
                }
                "gateway" => {
                    let bad = |_| format!("`{value}` is not an IPv4 address: write it as 10.0.0.254");
                    gateway = Some(value.parse().map_err(bad)?);
                }
                "rx" => rx = ring_size(value)?,
                "tx" => tx = ring_size(value)?,
                "offloads" => offloads = switch(key, value)?,
                "packed" => packed = switch(key, value)?,
                "in-order" => in_order = switch(key, value)?,
                "mtu" => mtu = packet(value)?,
                _ => {
                    return Err(format!(
                        "`{key}` is none of socket, mac, ip, gateway, rx, tx, offloads, packed, in-order, mtu"
                    ));
                }
            }
        }
        let socket = socket.ok_or("a vNIC needs socket=PATH")?;
        let mac = mac.ok_or("a vNIC needs mac=MAC")?;
        Ok(Self { socket, mac, ip, gateway, rx, tx, offloads, packed, in_order, mtu })
    }
}

/// A vsock device, written `socket=PATH` or `connect=PATH`, with `buffer=BYTES`, `packet=BYTES`,
/// `rx=N`, `tx=N`, `copy=on|off` and `silent=N` after further commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VsockOptions {
    /// vhost-user socket.
    pub socket: PathBuf,
    /// Connect to the back end, which listens on the socket; otherwise the microguest listens.
    pub connect: bool,
    /// Bytes of a receive buffer with its header, at least 128. Linux uses 4096.
    pub buffer: u32,
    /// Most payload bytes of a sent packet, up to 65536. Linux uses 65536.
    pub packet: u32,
    /// Entries of the receive ring, a power of two.
    pub rx: u16,
    /// Entries of the transmit ring, a power of two.
    pub tx: u16,
    /// Programs write what they send and read what they receive. Otherwise an unchecked stream is
    /// sent as it lies in memory (Linux: `MSG_ZEROCOPY`) and discarded on arrival (`MSG_TRUNC`),
    /// which leaves only the device's own work.
    pub copy: bool,
    /// Grant 4 GiB of credit on each of this many connections, then take nothing more from the
    /// device, so that it gets no receive buffers: a guest that harms its peers.
    pub silent: Option<u32>,
}

impl FromStr for VsockOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut socket = None;
        let (mut buffer, mut packet, mut rx, mut tx, mut copy) = (4096, MAX_PAYLOAD, 256, 256, true);
        let mut silent = None;
        for field in text.split(',') {
            let (key, value) = field.split_once('=').ok_or_else(|| format!("`{field}` is not KEY=VALUE"))?;
            match key {
                "socket" | "connect" => socket = Some((PathBuf::from(value), key == "connect")),
                "buffer" => buffer = bytes(value, 128, MAX_PAYLOAD + 128)?,
                "packet" => packet = bytes(value, 1, MAX_PAYLOAD)?,
                "rx" => rx = ring_size(value)?,
                "tx" => tx = ring_size(value)?,
                "copy" => copy = switch(key, value)?,
                "silent" => silent = Some(connections(value)?),
                _ => {
                    return Err(format!(
                        "`{key}` is none of socket, connect, buffer, packet, rx, tx, copy, silent"
                    ));
                }
            }
        }
        let (socket, connect) = socket.ok_or("a VMCI device needs socket=PATH or connect=PATH")?;
        Ok(Self { socket, connect, buffer, packet, rx, tx, copy, silent })
    }
}

fn bytes(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number of bytes from {least} to {most}"))
}

fn connections(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{text}` is not a number of connections from 1 on"))
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{key} is on or off, not `{value}`")),
    }
}

fn packet(text: &str) -> Result<u16, String> {
    let bytes = text.parse().ok().filter(|bytes| (1280..=9190).contains(bytes));
    bytes.ok_or_else(|| format!("`{text}` is not an MTU from 1280 to 9190 bytes"))
}

fn ring_size(text: &str) -> Result<u16, String> {
    let size = text.parse().ok().filter(|size: &u16| size.is_power_of_two() && (16..=4096).contains(size));
    size.ok_or_else(|| format!("a ring has a power of two of entries from 16 to 4096, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vnic_is_read_with_its_defaults() {
        let nic: NicOptions =
            "socket=/run/a.sock,mac=02:00:00:00:00:0a,ip=10.0.0.1/24,gateway=10.0.0.254,offloads=off,packed=on,mtu=9000".parse().unwrap();
        assert_eq!(nic.mac, EthernetAddress([2, 0, 0, 0, 0, 10]));
        assert_eq!((nic.rx, nic.tx, nic.offloads, nic.packed, nic.in_order), (256, 256, false, true, false));
        assert_eq!(nic.ip.unwrap().to_string(), "10.0.0.1/24");
        assert_eq!(nic.gateway, Some(Ipv4Addr::new(10, 0, 0, 254)));
        assert_eq!(nic.mtu, 9000);
        assert_eq!("socket=/s,mac=02:00:00:00:00:01".parse::<NicOptions>().unwrap().mtu, 1500);
    }

    #[test]
    fn a_vsock_device_is_read_with_its_defaults() {
        let vsock: VsockOptions = "socket=/run/a.sock".parse().unwrap();
        assert_eq!(
            (vsock.connect, vsock.buffer, vsock.packet, vsock.rx, vsock.tx),
            (false, 4096, 65_536, 256, 256)
        );
        let vsock: VsockOptions = "connect=/b,buffer=65580,packet=3500,rx=32,copy=off".parse().unwrap();
        assert_eq!(
            (vsock.connect, vsock.buffer, vsock.packet, vsock.rx, vsock.copy),
            (true, 65_580, 3500, 32, false)
        );
        assert_eq!(vsock.silent, None);
        assert_eq!("socket=/s,silent=64".parse::<VsockOptions>().unwrap().silent, Some(64));
        for (text, part) in [
            ("buffer=4096", "socket"),
            ("socket=/s,buffer=64", "128"),
            ("socket=/s,packet=65537", "65536"),
            ("socket=/s,silent=0", "connections"),
        ] {
            let error = text.parse::<VsockOptions>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_the_wrong_value() {
        for (text, part) in [
            ("mac=02:00:00:00:00:01", "socket"),
            ("socket=/s", "mac"),
            ("socket=/s,mac=02:00", "02:00"),
            ("socket=/s,mac=02:00:00:00:00:01,rx=100", "100"),
            ("socket=/s,mac=02:00:00:00:00:01,tx=8", "`8`"),
            ("socket=/s,mac=02:00:00:00:00:01,packed=yes", "yes"),
            ("socket=/s,mac=02:00:00:00:00:01,speed=1", "speed"),
            ("socket=/s,mac=02:00:00:00:00:01,mtu=9191", "9191"),
            ("socket", "KEY=VALUE"),
        ] {
            let error = text.parse::<NicOptions>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
