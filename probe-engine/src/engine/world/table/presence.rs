//! The sources that show a sandbox's existence, and since when.

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Voucher {
    /// A hook saw its making, or its process lives.
    Kernel,
    /// Its network namespace is bound to a file.
    Mount,
    /// libcni's cache or an IPAM store names it.
    Cni,
    /// The runtime's own record names it.
    Runtime,
    /// Its cgroup directory exists.
    Cgroupfs,
    /// A listing of processes had it.
    Listing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Presence {
    /// Sorted by voucher.
    pub(crate) vouched: Vec<Vouched>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vouched {
    pub(crate) by: Voucher,
    pub(crate) since: Timestamp,
}

impl Presence {
    /// Adds a voucher since `at`. An earlier time stays.
    pub(in crate::engine::world) fn vouch(&mut self, by: Voucher, at: Timestamp) {
        match self.vouched.binary_search_by_key(&by, |vouched| vouched.by) {
            Ok(found) => self.vouched[found].since = at.min(self.vouched[found].since),
            Err(place) => self.vouched.insert(place, Vouched { by, since: at }),
        }
    }

    /// Whether this voucher has shown it since `at` or earlier.
    #[must_use]
    pub(crate) fn is_vouched(&self, by: Voucher, at: Timestamp) -> bool {
        self.vouched.iter().any(|vouched| vouched.by == by && vouched.since <= at)
    }

    pub(in crate::engine) fn withdraw(&mut self, by: Voucher) {
        self.vouched.retain(|vouched| vouched.by != by);
    }

    /// Whether a voucher shows that it lives. Records do not: they can outlive the sandbox.
    #[must_use]
    pub(crate) fn is_alive(&self) -> bool {
        self.vouched.iter().any(|vouched| match vouched.by {
            Voucher::Kernel | Voucher::Mount | Voucher::Cgroupfs | Voucher::Listing => true,
            Voucher::Cni | Voucher::Runtime => false,
        })
    }
}
