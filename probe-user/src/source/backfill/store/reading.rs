//! What the tests of the stores share: they write files, read the store and compare its lines.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{Given, Kind, Memory};
use crate::{
    model::{
        fact::{Fact, List, Reservation, ReservationState, StoreRead},
        time::Timestamp,
    },
    source::{
        backfill::{Listing, Node, network::Configured},
        host::{HostRoot, skipped::Skipped},
        node::cgroup::Hierarchy,
    },
};

pub(super) fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// Writes a file whose time is this many seconds after the epoch.
pub(super) fn write(root: &Path, path: &str, text: &str, at: u64) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
    fs::write(&path, text).expect("a file");
    let file = File::options().write(true).open(path).expect("a file");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(at)).expect("a time");
}

/// Reads the store of a node with these networks, which was booted at this time.
pub(super) fn read_with(
    kind: &dyn Kind,
    root: &Path,
    memory: &mut Memory,
    networks: &[Configured],
    boot_wall_ns: i64,
) -> (Option<StoreRead>, Skipped) {
    let host = HostRoot::open(root).expect("the root");
    let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
    let clock = || Timestamp(1_000_000_000_000);
    let node = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns, stores: &[] };
    let mut list = Listing::begin(List::Ipam, node);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_nanos();
    memory.begin(i64::try_from(wall).expect("it fits"));
    kind.report(Given { node, daemons: &[], networks }, memory, &mut list);
    let (told, skipped) = list.end();
    let read = told.into_iter().find_map(|it| match it.fact {
        Fact::StoreRead(read) => Some(read),
        _ => None,
    });
    (read, skipped)
}

/// The address, the first letter of the container, the interface, the pod, the second of the allocation and
/// the second at which its release was queued.
pub(super) fn told(read: &StoreRead) -> Vec<String> {
    let second = |at: Timestamp| at.0 / 1_000_000_000;
    let one = |it: &Reservation| {
        let holder = it.holder.as_ref();
        let holder = holder.map_or_else(
            || "?".to_owned(),
            |holder| format!("{:.1} {:?}", holder.container.as_str(), holder.ifname),
        );
        let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref()).unwrap_or("-");
        let state = match it.state {
            ReservationState::Held => String::new(),
            ReservationState::Queued { since } => format!(" queued {}", second(since)),
        };
        format!("{} {holder} {pod} {}{state}", it.address, second(it.since))
    };
    read.reservations.iter().map(one).collect()
}
