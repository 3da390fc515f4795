//! Finds the version of the Debian package that owns an executable, among the packages of runtimes, kubelets
//! and plugins.
//!
//! dpkg's `info/PACKAGE.list` has a line for each file of a package. `status` has a stanza of `Name: value`
//! lines for each package (deb822(5)). RPM's database is not read.

use std::path::Path;

use probe_common::runtime::{self, HELPERS};

use crate::source::host::{HostRoot, lines};

/// The longest `status` that is read, bytes. The 4,000 packages of a desktop make 5 MB.
const MAX_STATUS_BYTES: usize = 32 << 20;

/// Returns the version of the package that owns this file.
pub(super) fn version(root: &HostRoot, path: &Path) -> Option<String> {
    let path = path.to_str()?;
    let dpkg = root.folder("/var/lib/dpkg").ok()?;
    let info = dpkg.folder("info").ok()?;
    // Only packages of runtimes and plugins are searched: the lists of all packages would be a thousand
    // files.
    let mut packages = runtime::of_runtimes(|row| row.packages)
        .chain(HELPERS.iter().flat_map(|row| row.packages))
        .chain(runtime::of_distributions(|row| row.packages));
    let name = packages.find(|name| {
        let list = info.read(&format!("{name}.list"), crate::source::host::FILE);
        list.is_ok_and(|list| lines(&list).any(|line| line == path))
    })?;
    installed(&dpkg.read("status", MAX_STATUS_BYTES).ok()?, name)
}

/// Returns the version of a package in dpkg's `status`, if the package is installed.
fn installed(status: &[u8], name: &str) -> Option<String> {
    let mut is_it = false;
    let mut is_installed = false;
    for line in lines(status) {
        match line.split_once(": ") {
            Some(("Package", of)) => {
                is_it = of == name;
                is_installed = false;
            }
            Some(("Status", state)) => is_installed = state.ends_with(" installed"),
            Some(("Version", version)) if is_it && is_installed => {
                // Debian Policy 5.6.12 allows these characters. Other text would be reported unchecked.
                let is_valid = version.len() <= 256
                    && version.bytes().all(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-' | b'~' | b':')
                    });
                return is_valid.then(|| version.to_owned());
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::installed;

    #[test]
    fn a_stanza_gives_the_version_that_is_installed() {
        let status = b"Package: runc\nStatus: install ok installed\nDepends: libc6\nVersion: 1.1.5+ds1-1\n\n\
            Package: kubelet\nStatus: deinstall ok config-files\nVersion: 1.27.1-00\n\n\
            Package: odd\nStatus: install ok installed\nVersion: 1 leaked\n";
        assert_eq!(installed(status, "runc").as_deref(), Some("1.1.5+ds1-1"));
        for absent in ["kubelet", "run", "odd", "containerd"] {
            assert_eq!(installed(status, absent), None, "{absent}");
        }
        assert_eq!(installed(b"\xff\xfe\0Package: runc\n", "runc"), None);
    }
}
