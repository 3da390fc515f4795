//! The part of the changelog about a version, which is the text of its release.

use super::Release;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;

/// Returns the text of a release. Refuses a tag that is not this version's, a version that is not in the changelog, and
/// changes that were not moved to it.
pub(super) fn of(tag: &str, release: &Release) -> Result<String> {
    let version = release.version;
    ensure!(
        tag == format!("v{version}"),
        "the tag {tag} is not that of version {version}: tag v{version}, or set the version in Cargo.toml first"
    );
    let left = left(&workspace::root().join("changelog.d"))?;
    ensure!(left.is_empty(), "changelog.d still has {}: write them into CHANGELOG.md", left.join(", "));
    let path = workspace::root().join("CHANGELOG.md");
    let changelog = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    section(&changelog, version).with_context(|| {
        format!("CHANGELOG.md has no text below \"## {version}\": write it from the files in changelog.d")
    })
}

/// Returns the names of the changes in a folder, which also has a README.
fn left(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != "README.md");
    names.sort();
    Ok(names)
}

fn section(changelog: &str, version: &str) -> Option<String> {
    let mut sections = changelog.split("\n## ").skip(1);
    let section = sections.find(|section| section.split_whitespace().next() == Some(version))?;
    let (_title, text) = section.split_once('\n')?;
    let text = text.trim();
    if text.is_empty() { None } else { Some(format!("{text}\n")) }
}

#[cfg(test)]
mod tests {
    use super::{Release, fs, left, of, section};
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
    fn changes_that_are_left_are_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("README.md"), "").unwrap();
        assert_eq!(left(folder.path()).unwrap(), [""; 0]);
        fs::write(folder.path().join("fixed-it.md"), "").unwrap();
        assert_eq!(left(folder.path()).unwrap(), ["fixed-it.md"]);
    }

    #[test]
    fn this_version_has_a_text() {
        let changelog = include_str!("../../../CHANGELOG.md");
        assert!(section(changelog, env!("CARGO_PKG_VERSION")).is_some_and(|text| text.lines().count() > 3));
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
