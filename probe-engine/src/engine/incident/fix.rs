//! The first versions of programs in which a finding's problem is fixed, according to upstream's release
//! notes or history.
//!
//! A row names the first fixed release of each line that got the fix. Releases of lines older than `from`
//! were not looked up, so nothing is said about them. A distribution may have backported the fix to an older
//! version.

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{
    change::Finding,
    finding::{Cause, Duplicate, DuplicateSandbox, Kind, LeakedAddress},
};

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
    pub what: &'static str,
    /// Upstream's report or change.
    pub source: &'static str,
}

/// A release upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(u32, u32, u32);

struct Fix {
    /// The name of the executable.
    program: &'static str,
    is_of: fn(&Kind) -> bool,
    what: &'static str,
    /// The first fixed release of each line, the oldest first. Every later line has the fix.
    fixed: &'static [Release],
    /// The oldest line that is known not to have been fixed in another way.
    from: (u32, u32),
    source: &'static str,
}

const FIXES: &[Fix] = &[
    // Release notes of 1.19.4 and 1.20.0. 1.17 and 1.18 got the fix too, in releases that were not looked up.
    Fix {
        program: "kubelet",
        is_of: |it| {
            matches!(it, Kind::DuplicateSandbox(DuplicateSandbox { form: Duplicate::AfterCompletion, .. }))
        },
        what: "no other sandbox for a pod with restartPolicy OnFailure whose containers have succeeded",
        fixed: &[Release(1, 19, 4), Release(1, 20, 0)],
        from: (1, 19),
        source: "https://github.com/kubernetes/kubernetes/pull/92614",
    },
    // Release notes of 1.5.15 and 1.6.9; 1.7.0 has the commit.
    Fix {
        program: "containerd",
        is_of: |it| is_leak(it, &[Cause::RuntimeEnded, Cause::AddFailed]),
        what: "the record of a sandbox is made before its network",
        fixed: &[Release(1, 5, 15), Release(1, 6, 9), Release(1, 7, 0)],
        from: (1, 0),
        source: "https://github.com/containerd/containerd/issues/5768",
    },
    // Release notes of 1.5.3; 1.6.0 has the commit. Before 1.5 the code was in another repository.
    Fix {
        program: "containerd",
        is_of: |it| is_leak(it, &[Cause::AddFailed]),
        what: "the DEL after a failed ADD is not canceled with the request",
        fixed: &[Release(1, 5, 3), Release(1, 6, 0)],
        from: (1, 5),
        source: "https://github.com/containerd/containerd/pull/5569",
    },
    // The commits' tags. The event subscriber that they remove came with 2.0.
    Fix {
        program: "containerd",
        is_of: |it| matches!(it, Kind::OrphanSandbox(_)),
        what: "a sandbox's shim is not left behind by two clean-ups at once",
        fixed: &[Release(2, 0, 7), Release(2, 1, 5), Release(2, 2, 0)],
        from: (2, 0),
        source: "https://github.com/containerd/containerd/issues/12344",
    },
    // The commit's tags.
    Fix {
        program: "containerd",
        is_of: |it| matches!(it, Kind::OrphanSandbox(_)),
        what: "the shim of a sandbox that was being made when containerd crashed is cleaned up",
        fixed: &[Release(1, 7, 0)],
        from: (1, 0),
        source: "https://github.com/containerd/containerd/issues/6860",
    },
    // The changelog of 1.10.3.
    Fix {
        program: "aws-cni",
        is_of: |it| is_leak(it, &[Cause::DelBlind]),
        what: "a DEL with an empty CNI_NETNS frees the address",
        fixed: &[Release(1, 10, 3), Release(1, 11, 0)],
        from: (1, 0),
        source: "https://github.com/aws/amazon-vpc-cni-k8s/pull/1941",
    },
];

/// Returns the programs of a finding of which a later version fixes the problem.
pub fn fixes(finding: &Finding) -> impl Iterator<Item = FixedIn<'_>> {
    let rows = FIXES.iter().filter(|fix| (fix.is_of)(&finding.kind));
    rows.flat_map(|fix| {
        let programs = finding.programs.iter().filter(|it| it.path.rsplit('/').next() == Some(fix.program));
        programs.filter_map(|it| {
            let version = it.version.as_deref()?;
            let fixed = fix.missing_from(Release::parse(version)?)?;
            Some(FixedIn { path: &it.path, version, fixed, what: fix.what, source: fix.source })
        })
    })
}

impl Fix {
    /// Returns the release with the fix, if this version is known not to have it.
    fn missing_from(&self, version: Release) -> Option<Release> {
        let line = version.line();
        let of_line = self.fixed.iter().find(|it| it.line() == line);
        let fixed = of_line.or_else(|| self.fixed.first().filter(|first| line < first.line()))?;
        (line >= self.from && version < *fixed).then_some(*fixed)
    }
}

impl Release {
    /// Parses the upstream release of a version: `v1.27.3-eks-a5565ad`, `1.6.20~ds1-1`, `2:1.7.2-1`. `None`
    /// for a pre-release (`1.20.0-rc.1`), since it is not known which fixes it has.
    fn parse(version: &str) -> Option<Self> {
        let version = version.rsplit_once(':').map_or(version, |(_epoch, version)| version);
        let version = version.strip_prefix('v').unwrap_or(version);
        let end =
            version.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(version.len());
        let (numbers, rest) = version.split_at(end);
        let is_early =
            ["alpha", "beta", "rc"].iter().any(|it| rest.trim_start_matches(['-', '~']).starts_with(it));
        let mut numbers = numbers.split('.').map(|it| it.parse().ok());
        let release = Self(numbers.next()??, numbers.next()??, numbers.next()??);
        (!is_early).then_some(release)
    }

    fn line(self) -> (u32, u32) {
        (self.0, self.1)
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

fn is_leak(it: &Kind, causes: &[Cause]) -> bool {
    matches!(it, Kind::LeakedAddress(LeakedAddress { cause, .. }) if causes.contains(cause))
}

/// Returns the program, the fixed releases and the source of each row.
#[cfg(test)]
pub(super) fn rows() -> Vec<(&'static str, String, &'static str)> {
    FIXES
        .iter()
        .map(|fix| {
            let fixed: Vec<String> = fix.fixed.iter().map(ToString::to_string).collect();
            (fix.program, fixed.join(", "), fix.source)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{FIXES, Release};

    fn fixed(source: &str, version: &str) -> Option<String> {
        let fix = FIXES.iter().find(|it| it.source.ends_with(source)).expect("a row");
        fix.missing_from(Release::parse(version)?).map(|it| it.to_string())
    }

    #[test]
    fn a_version_lacks_the_repair_of_its_own_line() {
        let of = |version| fixed("issues/5768", version);
        assert_eq!(of("1.6.8").as_deref(), Some("1.6.9"));
        assert_eq!(of("v1.5.11-k3s2").as_deref(), Some("1.5.15"));
        assert_eq!(of("1.4.13~ds1-1~deb11u4").as_deref(), Some("1.5.15"), "a line that was never repaired");
        assert_eq!((of("1.6.20~ds1-1+deb12u3"), of("1.7.0"), of("2:2.1.4")), (None, None, None));
    }

    #[test]
    fn nothing_is_said_of_what_was_not_looked_up() {
        let of = |version| fixed("pull/92614", version);
        assert_eq!(of("v1.19.3-eks-1").as_deref(), Some("1.19.4"));
        assert_eq!((of("v1.18.20"), of("v1.20.0-rc.0"), of("1.19"), of("devel")), (None, None, None, None));
    }

    #[test]
    fn the_releases_of_a_row_are_in_order_and_of_different_lines() {
        for fix in FIXES {
            assert!(fix.fixed.windows(2).all(|two| two[0].line() < two[1].line()), "{}", fix.source);
            assert!(fix.fixed.first().is_some_and(|it| it.line() >= fix.from), "{}", fix.source);
        }
    }
}
