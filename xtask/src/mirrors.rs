//! apt: its sources on this machine, its lists, and its lines for a suite of Debian.

use crate::{root, workspace};
use anyhow::{Result, bail};
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// The variable with the mirror to use on a machine whose apt has no Debian mirror (Ubuntu).
const MIRROR: &str = "SANDPROBE_DEBIAN_MIRROR";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(crate) struct Mirrors {
    pub(crate) main: String,
    /// The mirror of security updates of bullseye and other releases, if this machine's apt has one.
    pub(crate) security: Option<String>,
}

impl Mirrors {
    pub(crate) fn find() -> Result<Self> {
        if let Ok(main) = env::var(MIRROR) {
            return Ok(Self { main, security: None });
        }
        if let Some(mirrors) = Self::of_apt()? {
            return Ok(mirrors);
        }
        // Container images have no lists of apt, and without them apt does not name its sources.
        update()?;
        let Some(mirrors) = Self::of_apt()? else {
            bail!("this machine's apt has no Debian mirror: name one in {MIRROR}");
        };
        Ok(mirrors)
    }

    fn of_apt() -> Result<Option<Self>> {
        let mut apt = Command::new("apt-get");
        apt.args(["indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"]);
        Ok(Self::among(&workspace::output(&mut apt)?))
    }

    fn among(targets: &str) -> Option<Self> {
        let main = labelled(targets, "Debian")?.to_owned();
        Some(Self { main, security: labelled(targets, "Debian-Security").map(ToOwned::to_owned) })
    }
}

/// Returns the first address with this label.
fn labelled<'a>(targets: &'a str, label: &str) -> Option<&'a str> {
    let mut targets = targets.lines().filter_map(|line| line.split_once(' '));
    targets.find(|(_, is)| *is == label).map(|(address, _)| address)
}

/// Returns a line of `sources.list`, signed by Debian's own keys if this machine has them.
pub(crate) fn line(mirror: &str, suite: &str, options: &[&str]) -> String {
    let mut options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    if Path::new(KEYRING).exists() {
        options.push(format!("signed-by={KEYRING}"));
    }
    let options = if options.is_empty() { String::new() } else { format!("[{}] ", options.join(" ")) };
    format!("deb {options}{mirror} {suite} main\n")
}

/// Fetches apt's lists. Reports a repository that cannot be reached, and still uses the others.
pub(crate) fn update() -> Result<()> {
    root::authorize()?;
    if let Err(error) = apt_get(&["update"]) {
        println!("setup: going on, though {error:#}");
    }
    Ok(())
}

pub(crate) fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = root::command("env");
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]);
    workspace::output(command.args(args).stdin(Stdio::null())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::Mirrors;

    #[test]
    fn mirrors_by_label() {
        let found =
            Mirrors::among("http://a/debian/ Debian\nhttp://a/sec/ Debian-Security\nhttp://b/x Other\n")
                .unwrap();
        assert_eq!(
            (found.main.as_str(), found.security.as_deref()),
            ("http://a/debian/", Some("http://a/sec/"))
        );
        assert!(Mirrors::among("http://u/ubuntu Ubuntu").is_none());
        assert!(Mirrors::among("").is_none());
    }
}
