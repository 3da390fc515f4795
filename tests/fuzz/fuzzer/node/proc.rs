//! Processes and cgroups, as the kernel shows them.

use probe_user::source::backfill;

pub fn seeds() -> Vec<Vec<u8>> {
    super::frozen::seeds(|path| path.starts_with("proc/") || path.starts_with("sys/fs/cgroup/"))
}

pub fn run(bytes: &[u8]) {
    super::read(bytes, backfill::present);
}
