//! What a node's real executables say of themselves.

use std::path::Path;

use anyhow::{Context as _, Result};
use probe_user::source::{
    host::{HostRoot, skipped::Skipped},
    release::{self, Release, Role},
};
use tests::node::Node;

#[test]
fn the_runtime_and_the_plugins_say_how_they_were_built() -> Result<()> {
    let node = Node::start()?;
    let root = HostRoot::open(Path::new("/"))?;
    let running = release::running(&root, &mut Skipped::default());
    let runtime =
        running.iter().find(|release| release.role == Role::Runtime && release.path.ends_with("containerd"));
    let runtime = runtime.with_context(|| format!("no containerd among {running:?}"))?;
    said(runtime, "github.com/containerd/containerd/");
    for name in ["bridge", "host-local"] {
        let path = Path::new("/usr/lib/cni").join(name);
        said(&Release::read(&root, Role::Plugin, &path), "github.com/containernetworking/plugins/");
    }
    node.stop()
}

fn said(release: &Release, project: &str) {
    let build = release.build.as_ref().unwrap_or_else(|why| panic!("{}: {why}", release.path.display()));
    assert!(build.go.starts_with("go1."), "{release}");
    // Before Go 1.18, a build outside of a module records no package.
    assert!(
        build.package.as_ref().is_none_or(|package| package.starts_with(project)),
        "{release}: {build:?}"
    );
}
