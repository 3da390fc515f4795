//! The sources of Debian packages on this machine, and apt's lines for a suite of them.

use crate::{package, workspace};
use anyhow::{Result, bail};
use std::env;
use std::path::Path;
use std::process::Command;

/// On a machine whose apt has no Debian mirror (Ubuntu), the mirror to use.
const MIRROR: &str = "SANDPROBE_DEBIAN_MIRROR";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(crate) struct Mirrors {
    pub(crate) main: String,
    /// Bullseye's and other releases' security updates, where this machine's apt knows of them.
    pub(crate) security: Option<String>,
}

impl Mirrors {
    pub(crate) fn find() -> Result<Self> {
        if let Ok(main) = env::var(MIRROR) {
            return Ok(Self { main, security: None });
        }
        let listed = || {
            workspace::output(Command::new("apt-get").args([
                "indextargets",
                "--format",
                "$(REPO_URI) $(LABEL)",
                "Created-By: Packages",
            ]))
        };
        if let Some(mirrors) = Self::among(&listed()?) {
            return Ok(mirrors);
        }
        // Container images come without apt's lists, and without them apt does not name its sources.
        package::update()?;
        let Some(mirrors) = Self::among(&listed()?) else {
            bail!("this machine's apt has no Debian mirror: name one in {MIRROR}");
        };
        Ok(mirrors)
    }

    fn among(targets: &str) -> Option<Self> {
        let labelled = |label| {
            targets
                .lines()
                .find_map(|line| line.split_once(' ').filter(|(_, is)| *is == label))
                .map(|(uri, _)| uri.to_owned())
        };
        Some(Self { main: labelled("Debian")?, security: labelled("Debian-Security") })
    }
}

/// A line of `sources.list`, signed by Debian's own keys if this machine has them.
pub(crate) fn line(mirror: &str, suite: &str, options: &[&str]) -> String {
    let mut options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    if Path::new(KEYRING).exists() {
        options.push(format!("signed-by={KEYRING}"));
    }
    let options = if options.is_empty() { String::new() } else { format!("[{}] ", options.join(" ")) };
    format!("deb {options}{mirror} {suite} main\n")
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
