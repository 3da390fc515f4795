//! containerd's configuration in the formats of its major versions.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use super::Place;
use crate::{command, image, kubelet::Driver};

/// The directories where distributions install the plugins.
const CNI_PLUGINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// Runs `containerd --version`.
    pub(super) fn of(containerd: &Path) -> Result<Self> {
        let name = containerd.to_str().with_context(|| format!("{} is not UTF-8", containerd.display()))?;
        let text = command::output(name, &["--version"])?;
        Self::parse(&text).ok_or_else(|| anyhow!("no version in containerd's output: {}", text.trim()))
    }

    /// Parses `containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().nth(2)?.trim_start_matches('v').split('.');
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

/// Returns the text of the configuration file.
pub(super) fn text(version: Version, place: &Place, plugins: &Path, driver: Driver) -> String {
    let common = format!(
        "root = {root:?}\nstate = {state:?}\n[grpc]\n  address = {socket:?}\n",
        root = place.containerd_root(),
        state = place.containerd_state(),
        socket = place.socket(),
    );
    if version.major == 1 {
        format!("version = 2\n{common}{}", version_1(place, plugins, driver))
    } else {
        // Version 2.1 renamed the key and refuses a file with both.
        let key = if version.minor == 0 { "bin_dir" } else { "bin_dirs" };
        let plugins = if version.minor == 0 { format!("{plugins:?}") } else { format!("[{plugins:?}]") };
        format!("version = 3\n{common}{}", version_2(place, &format!("{key} = {plugins}"), driver))
    }
}

fn version_1(place: &Place, plugins: &Path, driver: Driver) -> String {
    format!(
        r#"[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Lowering a score needs CAP_SYS_RESOURCE, which even root may lack: then it stays as it is.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {plugins:?}
    conf_dir = {cni:?}
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = {systemd}
      Root = {runc:?}
[plugins."io.containerd.internal.v1.opt"]
  path = {opt:?}
"#,
        pause = image::PAUSE,
        cni = place.cni_configuration(),
        systemd = driver == Driver::Systemd,
        runc = place.runc_root(),
        opt = place.root.join("opt"),
    )
}

fn version_2(place: &Place, plugins: &str, driver: Driver) -> String {
    format!(
        r#"[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    {plugins}
    conf_dir = {cni:?}
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = {systemd}
      Root = {runc:?}
# Its socket would be in a place shared with the host.
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.internal.v1.opt"]
  path = {opt:?}
"#,
        pause = image::PAUSE,
        cni = place.cni_configuration(),
        systemd = driver == Driver::Systemd,
        runc = place.runc_root(),
        opt = place.root.join("opt"),
    )
}

/// Returns the directory of this machine's plugins.
pub(super) fn plugins() -> PathBuf {
    let installed = CNI_PLUGINS.iter().find(|directory| Path::new(directory).join("bridge").exists());
    PathBuf::from(installed.unwrap_or(&CNI_PLUGINS[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_of_each_release() {
        let parse = |text| Version::parse(text).map(|version| (version.major, version.minor));
        assert_eq!(
            parse("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3"),
            Some((1, 6))
        );
        assert_eq!(parse("containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4"), Some((2, 1)));
        assert_eq!(parse("containerd"), None);
    }

    #[test]
    fn each_release_gets_its_own_format() {
        let place = Place::new("1a".to_owned());
        let old = text(Version { major: 1, minor: 7 }, &place, Path::new("/p"), Driver::Systemd);
        assert!(old.starts_with("version = 2\n"));
        assert!(old.contains("SystemdCgroup = true"));
        let key = |minor| {
            let text = text(Version { major: 2, minor }, &place, Path::new("/p"), Driver::Cgroupfs);
            text.lines().find(|line| line.contains("bin_dir")).map(|line| line.trim().to_owned())
        };
        assert_eq!(key(0).map(|line| line.starts_with("bin_dir = \"")), Some(true));
        assert_eq!(key(1).map(|line| line.starts_with("bin_dirs = [\"")), Some(true));
    }
}
