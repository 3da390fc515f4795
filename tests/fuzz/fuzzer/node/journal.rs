//! A file of the systemd journal, which is searched like text logs.

use std::fs;

use probe_user::source::host::HostRoot;

/// The folder in which journald keeps it.
const PLACE: &str = "var/log/journal/5d1cb95b000040008000000000000001";

/// Journals in both layouts.
const JOURNALS: [&[u8]; 2] = [
    include_bytes!("../../../../probe-user/tests/data/journal/compact.journal"),
    include_bytes!("../../../../probe-user/tests/data/journal/regular.journal"),
];

pub fn seeds() -> Vec<Vec<u8>> {
    JOURNALS.map(<[u8]>::to_vec).to_vec()
}

pub fn run(bytes: &[u8]) {
    let root = super::folder();
    let place = root.path().join(PLACE);
    fs::create_dir_all(&place).expect("a folder");
    fs::write(place.join("system.journal"), bytes).expect("a journal");
    super::log::ask(&HostRoot::open(root.path()).expect("a root"));
}
