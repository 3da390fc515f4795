//! The stores of IPAM plugins with the allocated addresses, and the networks of these.

use probe_user::source::backfill;

pub fn seeds() -> Vec<Vec<u8>> {
    super::frozen::seeds(|path| {
        ["var/lib/cni/networks/", "run/aws-node/", "run/azure-cns/", "var/run", "etc/cni/"]
            .iter()
            .any(|begin| path.starts_with(begin))
            || path.contains("/net.d/")
    })
}

pub fn run(bytes: &[u8]) {
    super::read(bytes, backfill::records);
}
