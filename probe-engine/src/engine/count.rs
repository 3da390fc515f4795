//! Counters for the summary at the end of a run.

use std::collections::BTreeMap;

use crate::model::{change::ChangeName, fact::Loss};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes reported.
    pub told: BTreeMap<ChangeName, u64>,
    /// Changes reported late.
    pub late: u64,
    /// Kernel records that came twice.
    pub duplicates: u64,
    /// Ends of network namespaces that netlink reported after everything else about them was over.
    pub stale: u64,
    /// Lost records, by where they were lost.
    pub lost: BTreeMap<Loss, u64>,
    /// `VERSION` and `STATUS` calls, which are not streamed.
    pub cni_quiet: u64,
    /// Programs that CNI plugins ran for themselves.
    pub cni_helpers: u64,
    /// CNI calls from within containers while no operation of the host was open.
    pub cni_foreign: u64,
}
