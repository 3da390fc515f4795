//! Reads the stores in which IPAM plugins record the addresses that are in use.
//!
//! To add a kind of store, add a file here that implements `Kind`, and a line to `KINDS`.
//!
//! **Invariant:** a store that exists and cannot be read is told of as incomplete.

mod aws_ipamd;
mod declared;
mod directory;
mod host_local;

pub use declared::Declared;

use super::{
    Listing, Node,
    daemon::Daemon,
    network::{self, Configured},
};
use crate::model::{
    fact::{Holder, List},
    id::ContainerId,
};

/// One kind of store.
trait Kind {
    /// Tells of every store of this kind on the node.
    fn tell(&self, node: Node<'_>, daemons: &[Daemon], networks: &[Configured], list: &mut Listing<'_>);
}

const KINDS: [&dyn Kind; 3] = [&host_local::HostLocal, &aws_ipamd::AwsIpamd, &declared::Stores];

/// The longest name of an interface (`IFNAMSIZ` without the NUL).
const IFNAME: usize = 15;

/// Lists the configured networks, then the stores.
pub(super) fn list<'a>(node: Node<'a>, daemons: &[Daemon]) -> Listing<'a> {
    let mut list = Listing::begin(List::Ipam, node);
    let networks = network::tell(node, daemons, &mut list);
    for kind in KINDS {
        kind.tell(node, daemons, &networks, &mut list);
    }
    list
}

/// `None` if the container id or the interface name is not valid.
fn holder(container: &str, ifname: &str) -> Option<Holder> {
    let container = ContainerId::parse(container)?;
    (ifname.len() <= IFNAME).then(|| Holder { container, ifname: ifname.to_owned() })
}
