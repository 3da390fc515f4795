//! The first versions of programs in which a known problem is fixed, according to upstream's release notes or
//! history. A distribution may have backported the fix to an older version.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, DisplayFromStr, SerializeDisplay, serde_as};

use crate::model::{change::Finding, fact::ProgramFound};

/// A program whose later versions do not have this problem.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct FixedIn<'a> {
    pub path: &'a str,
    pub version: &'a str,
    /// The first upstream release with the repair.
    #[serde_as(as = "DisplayFromStr")]
    #[schemars(with = "String")]
    pub fixed: Release,
    /// What was repaired.
    pub what: &'a str,
    /// Upstream's report or change.
    pub source: &'a str,
}

/// A release upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, DeserializeFromStr, SerializeDisplay)]
pub struct Release(u32, u32, u32);

/// The releases of a program that got a fix.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fix {
    /// The name of the executable.
    pub name: String,
    /// The oldest line that is known not to have been fixed in another way. Nothing is said about older ones.
    pub from: Line,
    /// The first fixed release of each line, the oldest first. Every later line has the fix.
    pub fixed: Vec<Release>,
    pub what: String,
    pub source: String,
}

/// The releases that share the first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, DeserializeFromStr, SerializeDisplay)]
pub struct Line(u32, u32);

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not a version of upstream")]
pub struct NotAVersion;

/// Returns the finding's programs of which a later version has one of these fixes.
pub(super) fn fixed_in<'a>(fixes: impl Iterator<Item = &'a Fix>, finding: &'a Finding) -> Vec<FixedIn<'a>> {
    let mut all = Vec::new();
    for fix in fixes {
        for (program, version) in fix.versions(finding) {
            if let Some(fixed) = fix.missing_from(version) {
                let version = program.version.as_deref().unwrap_or_default();
                all.push(FixedIn {
                    path: &program.path,
                    version,
                    fixed,
                    what: &fix.what,
                    source: &fix.source,
                });
            }
        }
    }
    all
}

/// Whether the versions of the programs that took part are known, and none of them is one to fix.
pub(super) fn are_excluded(fixes: &[Fix], finding: &Finding) -> bool {
    let mut is_known = false;
    for fix in fixes {
        for (_, version) in fix.versions(finding) {
            if fix.missing_from(version).is_some() {
                return false;
            }
            is_known = true;
        }
    }
    is_known
}

impl Fix {
    /// Returns the finding's programs of this name, each with its version, as far as it is known.
    fn versions<'a>(&self, finding: &'a Finding) -> impl Iterator<Item = (&'a ProgramFound, Release)> {
        let named = finding.programs.iter().filter(|it| it.path.rsplit('/').next() == Some(&*self.name));
        named.filter_map(|it| Some((it, it.version.as_deref()?.parse().ok()?)))
    }

    /// Returns the release with the fix, if this version is known not to have it.
    fn missing_from(&self, version: Release) -> Option<Release> {
        let line = version.line();
        let of_line = self.fixed.iter().find(|it| it.line() == line);
        let fixed = of_line.or_else(|| self.fixed.first().filter(|first| line < first.line()))?;
        (line >= self.from && version < *fixed).then_some(*fixed)
    }

    pub(super) fn is_in_order(&self) -> bool {
        let is_ordered = self.fixed.windows(2).all(|two| two[0].line() < two[1].line());
        is_ordered && self.fixed.first().is_some_and(|first| first.line() >= self.from)
    }
}

impl Release {
    fn line(self) -> Line {
        Line(self.0, self.1)
    }
}

impl FromStr for Release {
    type Err = NotAVersion;

    /// Parses the upstream release of a version: `v1.27.3-eks-a5565ad`, `1.6.20~ds1-1`, `2:1.7.2-1`. An error
    /// for a pre-release (`1.20.0-rc.1`), since it is not known which fixes it has.
    fn from_str(version: &str) -> Result<Self, NotAVersion> {
        let version = version.rsplit_once(':').map_or(version, |(_epoch, version)| version);
        let version = version.strip_prefix('v').unwrap_or(version);
        let end =
            version.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(version.len());
        let (numbers, rest) = version.split_at(end);
        let is_early =
            ["alpha", "beta", "rc"].iter().any(|it| rest.trim_start_matches(['-', '~']).starts_with(it));
        let mut numbers = numbers.split('.').map(|it| it.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor), Some(patch)) if !is_early => Ok(Self(major, minor, patch)),
            _ => Err(NotAVersion),
        }
    }
}

impl FromStr for Line {
    type Err = NotAVersion;

    /// Parses `1.27`.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let numbers =
            text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        numbers.map(|(major, minor)| Self(major, minor)).ok_or(NotAVersion)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor) = self;
        write!(f, "{major}.{minor}")
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Catalogue, Fix};

    fn fix(id: &str) -> &'static Fix {
        &Catalogue::built_in().get(id).expect("a problem").fixes[0]
    }

    fn fixed(fix: &Fix, version: &str) -> Option<String> {
        fix.missing_from(version.parse().ok()?).map(|it| it.to_string())
    }

    #[test]
    fn a_version_lacks_the_repair_of_its_own_line() {
        let fix = fix("containerd-record-after-network");
        for (version, first) in [
            ("1.6.8", Some("1.6.9")),
            ("v1.5.11-k3s2", Some("1.5.15")),
            // A line that was never repaired.
            ("1.4.13~ds1-1~deb11u4", Some("1.5.15")),
            ("1.6.20~ds1-1+deb12u3", None),
            ("1.7.0", None),
            ("2:2.1.4", None),
        ] {
            assert_eq!(fixed(fix, version).as_deref(), first, "{version}");
        }
    }

    #[test]
    fn nothing_is_said_of_what_was_not_looked_up() {
        let fix = fix("kubelet-second-sandbox-after-success");
        for (version, first) in [
            ("v1.19.3-eks-1", Some("1.19.4")),
            ("v1.18.20", None),
            ("v1.20.0-rc.0", None),
            ("1.19", None),
            ("devel", None),
        ] {
            assert_eq!(fixed(fix, version).as_deref(), first, "{version}");
        }
    }
}
