//! The build information in a node's real CNI plugins.

use std::path::Path;

use anyhow::{Context as _, Result};
use probe_user::source::{files::buildinfo::GoBuild, host::HostRoot};

#[test]
fn the_plugins_contain_their_build_information() -> Result<()> {
    let root = HostRoot::open(Path::new("/"))?;
    for name in ["bridge", "host-local"] {
        let path = Path::new("/usr/lib/cni").join(name);
        let file = root.plain(&path).with_context(|| path.display().to_string())?;
        let build = GoBuild::read(file).with_context(|| path.display().to_string())?;
        assert!(build.go.starts_with("go1."), "{build:?}");
        // Before Go 1.18, a build outside of a module records no package.
        let project = "github.com/containernetworking/plugins/";
        assert!(build.package.as_ref().is_none_or(|package| package.starts_with(project)), "{build:?}");
    }
    Ok(())
}
