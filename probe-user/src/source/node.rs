//! What is true of the whole node and does not begin or end with a pod: clocks, limits, the hierarchies of
//! cgroups, and the rights and the cost of this process.

pub mod cgroup;
pub mod clock;
pub(crate) mod machine_id;
pub(crate) mod missing_right;
pub(crate) mod netns_limit;
pub(crate) mod usage;
