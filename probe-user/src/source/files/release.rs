//! Finds the version of an executable on the node.
//!
//! The version in the executable comes first. Distributions may build without it (Debian's containerd has
//! neither a module nor strings set at link time); then it is the version of the package that owns the file.
//!
//! **Invariant:** no version is guessed from a path, and no program is run.

mod package;

use std::path::Path;

use super::buildinfo::GoBuild;
use crate::source::host::HostRoot;

/// Returns the version of the executable at a path of the node, links followed; `None` if it is unknown.
#[must_use]
pub(crate) fn version(root: &HostRoot, path: &Path) -> Option<String> {
    let build = root.plain(path).ok().and_then(|file| GoBuild::read(file).ok());
    let own = build.as_ref().and_then(GoBuild::version).map(str::to_owned);
    own.or_else(|| package::version(root, path))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::version;
    use crate::source::host::HostRoot;

    #[test]
    fn the_package_tells_the_version_of_an_executable_that_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("usr/bin")).expect("a directory");
        fs::write(at("usr/bin/containerd"), "#!/bin/sh\n").expect("a file");
        fs::create_dir_all(at("var/lib/dpkg/info")).expect("a directory");
        fs::write(at("var/lib/dpkg/info/containerd.list"), "/.\n/usr/bin\n/usr/bin/containerd\n")
            .expect("a file");
        let status = "Package: containerd\nStatus: install ok installed\nVersion: 1.6.20~ds1-1\n";
        fs::write(at("var/lib/dpkg/status"), status).expect("a file");
        let root = HostRoot::open(dir.path()).expect("the root");
        let found = version(&root, Path::new("/usr/bin/containerd"));
        assert_eq!(found.as_deref(), Some("1.6.20~ds1-1"));
        assert_eq!(version(&root, Path::new("/opt/cni/bin/bridge")), None);
    }
}
