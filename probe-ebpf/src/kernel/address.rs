//! `struct in_ifaddr` and `struct inet6_ifaddr`: an address on a network device.

use probe_common::{event::address::IPV4, text::IfName};

use super::{net::Net, offset, read, read_str};

/// An address as the kernel keeps it; both families in the form of a record.
#[derive(Clone, Copy)]
pub(crate) struct IfAddress {
    pub(crate) device: Device,
    pub(crate) address: [u8; 16],
    pub(crate) flags: u32,
    pub(crate) prefix: u8,
    pub(crate) scope: u8,
}

impl IfAddress {
    /// Reads a `struct in_ifaddr *` or a `struct inet6_ifaddr *`, by the family (`event::address`).
    #[inline(always)]
    pub(crate) fn of<const FAMILY: u8>(at: u64) -> Self {
        if FAMILY == IPV4 { Self::v4(at) } else { Self::v6(at) }
    }

    #[inline(always)]
    fn v4(ifa: u64) -> Self {
        let local: [u8; 4] = read(ifa, offset!(in_ifaddr_local));
        let mut address = [0; 16];
        address[..4].copy_from_slice(&local);
        Self {
            device: Device(read(read(ifa, offset!(in_ifaddr_dev)), offset!(in_device_dev))),
            address,
            flags: read(ifa, offset!(in_ifaddr_flags)),
            prefix: read(ifa, offset!(in_ifaddr_prefixlen)),
            scope: read(ifa, offset!(in_ifaddr_scope)),
        }
    }

    /// The kernel's prefix length and scope are wider than their values; the low byte counts, at either end
    /// of the word.
    #[inline(always)]
    fn v6(ifp: u64) -> Self {
        let prefix: u32 = read(ifp, offset!(inet6_ifaddr_prefix_len));
        let scope: u16 = read(ifp, offset!(inet6_ifaddr_scope));
        Self {
            device: Device(read(read(ifp, offset!(inet6_ifaddr_idev)), offset!(inet6_dev_dev))),
            address: read(ifp, offset!(inet6_ifaddr_addr)),
            flags: read(ifp, offset!(inet6_ifaddr_flags)),
            prefix: (prefix & 0xff) as u8,
            scope: (scope & 0xff) as u8,
        }
    }
}

/// `struct net_device`.
#[derive(Clone, Copy)]
pub(crate) struct Device(u64);

impl Device {
    #[inline(always)]
    pub(crate) fn net(self) -> Net {
        Net::at(read(self.0, offset!(net_device_net)))
    }

    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        read(self.0, offset!(net_device_ifindex))
    }

    #[inline(always)]
    pub(crate) fn name(self) -> IfName {
        let mut name = [0; 16];
        read_str(&mut name, self.0.wrapping_add(offset!(net_device_name) as u64));
        IfName(name)
    }
}
