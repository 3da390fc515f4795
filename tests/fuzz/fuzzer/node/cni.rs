//! libcni's cache of each ADD with the plugin's result, and the networks' configuration.

use probe_user::source::backfill;

pub fn seeds() -> Vec<Vec<u8>> {
    super::frozen::seeds(|path| {
        path.starts_with("var/lib/cni/results/") || path.starts_with("etc/cni/") || path.contains("/net.d/")
    })
}

pub fn run(bytes: &[u8]) {
    super::read(bytes, backfill::records);
}
