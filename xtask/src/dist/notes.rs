//! The part of the changelog about a version, which is the text of its release.

use super::Release;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;

/// Refuses a tag that is not this version's, and a version that is not in the changelog.
pub(super) fn of(tag: &str, release: &Release) -> Result<String> {
    let version = release.version;
    ensure!(
        tag == format!("v{version}"),
        "the tag {tag} is not that of version {version}: tag v{version}, or set the version in Cargo.toml first"
    );
    let path = workspace::root().join("CHANGELOG.md");
    let changelog = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    section(&changelog, version).with_context(|| {
        format!("CHANGELOG.md has no text below \"## {version}\": give its Unreleased part that title")
    })
}

fn section(changelog: &str, version: &str) -> Option<String> {
    let title = |line: &str| line.strip_prefix("## ").map(|title| title.split(' ').next() == Some(version));
    let after = changelog.lines().skip_while(|line| title(line) != Some(true)).skip(1);
    let lines: Vec<&str> = after.take_while(|line| title(line).is_none()).collect();
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then(|| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::{Release, of, section};
    use crate::dist::origin::Origin;

    const CHANGELOG: &str =
        "# Changelog\n\n## Unreleased\n\n## 1.1.0 (2026-12-01)\n\n* b\n  c\n\n## 1.0.0\n\n* a\n";

    #[test]
    fn a_version_has_the_text_below_its_title() {
        assert_eq!(section(CHANGELOG, "1.1.0").as_deref(), Some("* b\n  c\n"));
        assert_eq!(section(CHANGELOG, "1.0.0").as_deref(), Some("* a\n"));
        assert_eq!(section(CHANGELOG, "1.0"), None);
        assert_eq!(section(CHANGELOG, "Unreleased"), None, "it is empty");
    }

    #[test]
    fn a_tag_of_another_version_is_refused() {
        let origin = Origin::default();
        let release = Release { version: "1.2.3", made: 0, revision: String::new(), origin };
        for tag in ["1.2.3", "v1.2.4", "v1.2.3-rc.1"] {
            let error = of(tag, &release).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the tag {tag} is not that of version 1.2.3")), "{error}");
        }
    }
}
