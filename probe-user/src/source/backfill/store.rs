//! The places where IPAM plugins write down which addresses are given out.
//!
//! Another kind of store is another file here that implements `Kind`, and a line in `KINDS`.
//!
//! **Invariant:** a store that is there and cannot be read is told of too, as incomplete.

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
    /// Tells of every store of this kind that the node has.
    fn tell(&self, node: Node<'_>, daemons: &[Daemon], networks: &[Configured], list: &mut Listing<'_>);
}

const KINDS: [&dyn Kind; 3] = [&host_local::HostLocal, &aws_ipamd::AwsIpamd, &declared::Stores];

/// The longest name of an interface (`IFNAMSIZ`, the NUL left out).
const IFNAME: usize = 15;

/// The networks as they are configured, then every store.
pub(super) fn list<'a>(node: Node<'a>, daemons: &[Daemon]) -> Listing<'a> {
    let mut list = Listing::begin(List::Ipam, node);
    let networks = network::tell(node, daemons, &mut list);
    for kind in KINDS {
        kind.tell(node, daemons, &networks, &mut list);
    }
    list
}

/// `None` if one of the two cannot be a name of what it should be.
fn holder(container: &str, ifname: &str) -> Option<Holder> {
    let container = ContainerId::parse(container)?;
    (ifname.len() <= IFNAME).then(|| Holder { container, ifname: ifname.to_owned() })
}
