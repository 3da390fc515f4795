//! The addresses in use, as IPAM plugins keep them, and the networks that they are of.

use probe_user::source::backfill;

pub fn seeds() -> Vec<Vec<u8>> {
    super::frozen::seeds(|path| {
        ["var/lib/cni/networks/", "run/aws-node/", "var/run", "etc/cni/"]
            .iter()
            .any(|begin| path.starts_with(begin))
            || path.contains("/net.d/")
    })
}

pub fn run(bytes: &[u8]) {
    super::read(bytes, backfill::records);
}
