//! Makes and removes the pod's interface in the namespace of this process. It is one end of a veth pair whose
//! other end is in the pod too, because no packet has to leave the pod. The pair is removed with the
//! namespace.

use std::{
    net::Ipv4Addr,
    os::fd::{AsRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    libc,
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    },
};

/// The size of `struct nlmsghdr`.
const HEADER: usize = 16;
const AF_INET: u8 = 2;
/// From linux/veth.h.
const VETH_INFO_PEER: u16 = 1;

/// Makes the interface with this address, up and with a carrier.
pub(super) fn make(name: &str, address: Ipv4Addr, length: u8) -> Result<()> {
    let other = format!("p-{name}");
    let peer = [&link(0, false)[..], &Attributes::default().text(libc::IFLA_IFNAME, &other).0].concat();
    let data = Attributes::default().bytes(VETH_INFO_PEER, &peer);
    let info = Attributes::default().text(libc::IFLA_INFO_KIND, "veth").bytes(libc::IFLA_INFO_DATA, &data.0);
    let attributes = Attributes::default().text(libc::IFLA_IFNAME, name).bytes(libc::IFLA_LINKINFO, &info.0);
    let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    request(libc::RTM_NEWLINK, create, &[&link(0, false)[..], &attributes.0].concat())
        .with_context(|| format!("make the interface {name}"))?;
    // Both ends must exist before either can be up.
    for end in [&other, name] {
        request(libc::RTM_NEWLINK, 0, &link(index_of(end)?, true))
            .with_context(|| format!("set {end} up"))?;
    }
    let index = index_of(name)?;
    // struct ifaddrmsg: family, length, flags, scope (0: everywhere), index.
    let mut message = vec![AF_INET, length, 0, 0];
    message.extend(index.to_ne_bytes());
    let octets = address.octets();
    let attributes = Attributes::default().bytes(libc::IFA_LOCAL, &octets).bytes(libc::IFA_ADDRESS, &octets);
    message.extend(attributes.0);
    request(libc::RTM_NEWADDR, create, &message).with_context(|| format!("give {address} to {name}"))
}

/// Removes the interface and its other end. It is no error if there is none.
pub(super) fn remove(name: &str) -> Result<()> {
    let index = match if_nametoindex(name) {
        Err(Errno::ENODEV | Errno::ENXIO) => return Ok(()),
        _ => index_of(name)?,
    };
    request(libc::RTM_DELLINK, 0, &link(index, false)).with_context(|| format!("remove the interface {name}"))
}

/// Returns the IPv4 addresses of the interface. Empty if there is no interface.
pub(super) fn addresses(name: &str) -> Result<Vec<Ipv4Addr>> {
    let all = getifaddrs().context("list the addresses of the pod")?;
    let ours = all.filter(|one| one.interface_name == name);
    Ok(ours.filter_map(|one| Some(one.address?.as_sockaddr_in()?.ip())).collect())
}

fn index_of(name: &str) -> Result<u32> {
    if_nametoindex(name).with_context(|| format!("look for the interface {name}"))
}

/// `struct ifinfomsg`: family, type, index, flags, and the mask of the flags.
fn link(index: u32, up: bool) -> Vec<u8> {
    let flags = if up { libc::IFF_UP.unsigned_abs() } else { 0 };
    [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), flags.to_ne_bytes()].concat()
}

/// Attributes of rtnetlink one after the other: length, type and bytes, padded to four bytes.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn bytes(mut self, kind: u16, bytes: &[u8]) -> Self {
        let length = u16::try_from(4 + bytes.len()).expect("an attribute is short");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn text(self, kind: u16, text: &str) -> Self {
        self.bytes(kind, &[text.as_bytes(), b"\0"].concat())
    }
}

/// Sends one request and waits for the kernel's answer.
fn request(kind: u16, flags: libc::c_int, body: &[u8]) -> Result<()> {
    let socket: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags).context("flags have 16 bits")?;
    let mut message = u32::try_from(HEADER + body.len())?.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port id are zero, because this socket sends one request.
    message.extend([0; 8]);
    message.extend(body);
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;

    let mut answer = [0; 4096];
    let read = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let number = |at: usize| answer[at..at + 4].try_into().map(i32::from_ne_bytes);
    let answered = u16::from_ne_bytes([answer[4], answer[5]]);
    ensure!(
        read >= HEADER + 4 && i32::from(answered) == libc::NLMSG_ERROR,
        "the kernel's answer has another type"
    );
    match number(HEADER)? {
        0 => Ok(()),
        error => Err(Errno::from_raw(-error).into()),
    }
}
