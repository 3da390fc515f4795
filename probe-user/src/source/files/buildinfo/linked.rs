//! Strings that are set at link time. Most projects set an executable's version in this way.

use std::collections::BTreeMap;

use super::plain;

/// Names of variables that hold the version; the case does not matter.
const NAMES: [&str; 3] = ["version", "gitversion", "buildversion"];
/// The version variables of the Kubernetes commands.
const KUBERNETES: [&str; 2] =
    ["k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion"];

/// Returns the `-X PACKAGE.NAME=VALUE` flags among the linker's flags.
pub(super) fn strings(flags: &str) -> BTreeMap<String, String> {
    let mut strings = BTreeMap::new();
    let mut words = split(flags).into_iter();
    while let Some(word) = words.next() {
        let set = match word.trim_start_matches('-') {
            _ if !word.starts_with('-') => None,
            "X" => words.next(),
            flag => flag.strip_prefix("X=").map(str::to_owned),
        };
        if let Some((name, value)) = set.as_deref().and_then(|set| set.split_once('=')) {
            strings.extend(plain(name).zip(plain(value)));
        }
    }
    strings
}

/// Returns the version among the strings: the version of the project that owns the package or module `own`,
/// or of Kubernetes.
pub(super) fn version<'a>(strings: &'a BTreeMap<String, String>, own: &str) -> Option<&'a str> {
    let project = project(own);
    let own = strings.iter().find(|(variable, _)| {
        variable.rsplit_once('.').is_some_and(|(package, name)| {
            is_own(package, project) && NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
        })
    });
    let version = own.map(|(_, value)| value);
    version.or_else(|| KUBERNETES.iter().find_map(|name| strings.get(*name))).map(String::as_str)
}

/// Returns whether a package is the main package, or belongs to the project.
fn is_own(package: &str, project: &str) -> bool {
    package == "main"
        || package.strip_prefix(project).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `HOST/OWNER/NAME` of a package's path.
fn project(package: &str) -> &str {
    let end = package.match_indices('/').nth(2).map_or(package.len(), |(at, _)| at);
    &package[..end]
}

/// Splits at blanks. A quoted word is one word, as in Go's own `-ldflags`.
fn split(flags: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = flags.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = match first {
            '"' | '\'' => {
                let (word, after) = rest[1..].split_once(first).unwrap_or((&rest[1..], ""));
                rest = after;
                word
            }
            _ => {
                let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
                rest = after;
                word
            }
        };
        words.push(word.to_owned());
        rest = rest.trim_start();
    }
    words
}
