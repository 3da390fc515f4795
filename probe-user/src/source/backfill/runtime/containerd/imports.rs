//! Reads containerd's configuration with all its imports: the files that `imports` names, or matches if the
//! entry has a `*`, relative to the folder of the importing file, and their imports in turn. A later file
//! wins, table by table.
//!
//! **Invariant:** each file is read once, and at most [`MAX_FILES`] files are read, even if they import each
//! other.

use std::{
    collections::{BTreeSet, VecDeque},
    path::{Component, Path, PathBuf},
};

use toml::{Table, Value};

use crate::source::{
    backfill::runtime::daemon::settings::{self, UnreadSetting},
    host::{HostRoot, ReadError},
};

/// More files than any real configuration has.
const MAX_FILES: usize = 64;

/// Returns the configuration that begins in the file `first`; `None` if that does not exist.
pub(super) fn table(files: &HostRoot, first: &Path) -> Result<Option<Table>, UnreadSetting> {
    let first = clean(first);
    let Some(mut said) = settings::table(files, &first)? else { return Ok(None) };
    let mut waiting = VecDeque::from(imported(files, &first, &said)?);
    let mut read = BTreeSet::from([first]);
    while let Some(path) = waiting.pop_front() {
        if !read.insert(path.clone()) {
            continue;
        }
        if read.len() > MAX_FILES {
            return Err(UnreadSetting { path, why: ReadError::TooMany(MAX_FILES) });
        }
        // containerd does not start if a file that is imported by name is missing.
        let more = settings::table(files, &path)?;
        let more = more.ok_or_else(|| UnreadSetting { path: path.clone(), why: ReadError::Absent })?;
        waiting.extend(imported(files, &path, &more)?);
        merge(&mut said, more);
    }
    Ok(Some(said))
}

/// Returns the files that a configuration imports, in its order.
fn imported(files: &HostRoot, by: &Path, said: &Table) -> Result<Vec<PathBuf>, UnreadSetting> {
    let named = said.get("imports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let folder = by.parent().unwrap_or(Path::new("/"));
    let mut found = Vec::new();
    for path in named.filter(|named| !named.is_empty()).map(|named| clean(&folder.join(named))) {
        if path.to_string_lossy().contains('*') {
            found.extend(matching(files, &path)?);
        } else {
            found.push(path.clone());
        }
        if found.len() > MAX_FILES {
            return Err(UnreadSetting { path, why: ReadError::TooMany(MAX_FILES) });
        }
    }
    Ok(found)
}

/// Returns the files that match a pattern, sorted by name. It is not an error if none matches.
fn matching(files: &HostRoot, pattern: &Path) -> Result<Vec<PathBuf>, UnreadSetting> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.components() {
        let Component::Normal(part) = part else { continue };
        let part = part.to_str().ok_or_else(|| unread(pattern, ReadError::Malformed))?;
        let steps = steps(part).ok_or_else(|| unread(pattern, ReadError::Malformed))?;
        let mut next = Vec::new();
        for folder in found {
            match names(files, &folder, part, &steps) {
                Ok(names) => next.extend(names.into_iter().map(|name| folder.join(name))),
                Err(ReadError::Absent | ReadError::NotPlain) => {}
                Err(why) => return Err(unread(pattern, why)),
            }
            if next.len() > MAX_FILES {
                return Err(unread(pattern, ReadError::TooMany(MAX_FILES)));
            }
        }
        found = next;
    }
    Ok(found)
}

fn unread(pattern: &Path, why: ReadError) -> UnreadSetting {
    UnreadSetting { path: pattern.to_owned(), why }
}

/// Returns the entries of a folder that match one part of a pattern.
fn names(files: &HostRoot, folder: &Path, part: &str, steps: &[Step]) -> Result<Vec<String>, ReadError> {
    let folder = files.folder(folder)?;
    if !part.contains(['*', '?', '[', '\\']) {
        return folder.edition(part).map(|_| vec![part.to_owned()]);
    }
    let entries = folder.entries()?.entries.into_iter().map(|entry| entry.name);
    Ok(entries.filter(|name| fits(steps, &name.chars().collect::<Vec<_>>())).collect())
}

/// A step of a pattern of Go's `filepath.Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Any,
    One,
    Char(char),
    Among { ranges: Vec<(char, char)>, negated: bool },
}

/// Parses a pattern; `None` if it is not valid.
fn steps(pattern: &str) -> Option<Vec<Step>> {
    let mut chars = pattern.chars().peekable();
    let mut steps = Vec::new();
    while let Some(char) = chars.next() {
        steps.push(match char {
            '*' => Step::Any,
            '?' => Step::One,
            '\\' => Step::Char(chars.next()?),
            '[' => {
                let negated = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                while ranges.is_empty() || chars.next_if_eq(&']').is_none() {
                    let first = member(&mut chars)?;
                    let last = if chars.next_if_eq(&'-').is_some() { member(&mut chars)? } else { first };
                    ranges.push((first, last));
                }
                Step::Among { ranges, negated }
            }
            char => Step::Char(char),
        });
    }
    Some(steps)
}

/// Parses one end of a range.
fn member(chars: &mut impl Iterator<Item = char>) -> Option<char> {
    match chars.next()? {
        '\\' => chars.next(),
        '-' | ']' => None,
        char => Some(char),
    }
}

/// Returns whether the whole name matches. Only the latest `*` is retried, so the time is bounded.
fn fits(steps: &[Step], name: &[char]) -> bool {
    let mut step = 0;
    let mut at = 0;
    let mut again: Option<(usize, usize)> = None;
    loop {
        match (steps.get(step), name.get(at)) {
            (None, None) => return true,
            (Some(Step::Any), _) => {
                again = Some((step, at));
                step += 1;
            }
            (Some(it), Some(char)) if it.takes(*char) => (step, at) = (step + 1, at + 1),
            _ => match again {
                Some((any, begun)) if begun < name.len() => {
                    again = Some((any, begun + 1));
                    (step, at) = (any + 1, begun + 1);
                }
                _ => return false,
            },
        }
    }
}

impl Step {
    fn takes(&self, char: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Char(own) => *own == char,
            Self::Among { ranges, negated } => {
                ranges.iter().any(|(first, last)| (first..=last).contains(&&char)) != *negated
            }
        }
    }
}

/// Resolves `.` and `..`, so that each file has one path.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => _ = cleaned.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

/// Adds later settings. An empty text sets nothing.
fn merge(said: &mut Table, later: Table) {
    for (key, value) in later {
        match (said.get_mut(&key), value) {
            (Some(Value::Table(said)), Value::Table(later)) => merge(said, later),
            (Some(_), Value::String(text)) if text.is_empty() => {}
            (_, value) => _ = said.insert(key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;
    use tempfile::TempDir;
    use toml::Table;

    use super::{HostRoot, MAX_FILES, ReadError, clean, fits, steps, table};
    use crate::source::backfill::runtime::daemon::settings::text;

    const MAIN: &str = "/etc/containerd/config.toml";

    fn node(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn read(root: &TempDir) -> Result<Option<Table>, (String, ReadError)> {
        let host = HostRoot::open(root.path()).expect("the root");
        table(&host, Path::new(MAIN)).map_err(|unread| (unread.path.display().to_string(), unread.why))
    }

    #[test]
    fn what_is_imported_counts_and_the_last_word_wins() {
        let root = node(&[
            (
                MAIN,
                "imports = ['conf.d/*.toml', '/opt/own/../own/more.toml']\nroot = '/first'\nstate = '/s'\n[grpc]\naddress = '/a'\nuid = 0\n",
            ),
            ("/etc/containerd/conf.d/20.toml", "root = '/second'\n[grpc]\naddress = '/b'\n"),
            ("/etc/containerd/conf.d/10.toml", "root = '/never'\nstate = ''\n"),
            ("/etc/containerd/conf.d/ignored.conf", "root = '/other'\n"),
            ("/opt/own/more.toml", "imports = ['nested.toml']\n"),
            ("/opt/own/nested.toml", "[plugins.'io.containerd.grpc.v1.cri'.cni]\nconf_dir = '/n'\n"),
        ]);
        let said = read(&root).expect("read").expect("it is there");
        assert_eq!(text(&said, &["root"]), Some("/second"));
        assert_eq!(text(&said, &["state"]), Some("/s"), "an empty text says nothing");
        assert_eq!(text(&said, &["grpc", "address"]), Some("/b"));
        assert!(said["grpc"].get("uid").is_some(), "the rest of a table stays");
        let networks = ["plugins", "io.containerd.grpc.v1.cri", "cni", "conf_dir"];
        assert_eq!(text(&said, &networks), Some("/n"));
    }

    #[test]
    fn files_that_import_each_other_are_read_once() {
        let root = node(&[
            (MAIN, "imports = ['./config.toml', 'other.toml', 'x/../*.toml']\nroot = '/first'\n"),
            ("/etc/containerd/other.toml", "imports = ['/etc/containerd/*']\nroot = '/second'\n"),
        ]);
        let said = read(&root).expect("it ends").expect("it is there");
        assert_eq!(text(&said, &["root"]), Some("/second"));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_what_matches_nothing_is_nothing() {
        let of = |imports: &str| read(&node(&[(MAIN, &format!("imports = [{imports}]\nroot = '/r'\n"))]));
        for nothing in ["", "'conf.d/*.toml'", "'*/*.toml'", "''", "7"] {
            assert!(of(nothing).is_ok_and(|said| said.is_some()), "{nothing}");
        }
        assert_eq!(of("'gone.toml'"), Err(("/etc/containerd/gone.toml".to_owned(), ReadError::Absent)));
        assert_eq!(of("'*['"), Err(("/etc/containerd/*[".to_owned(), ReadError::Malformed)));
        let many: Vec<(String, &str)> =
            (0..=MAX_FILES).map(|n| (format!("/etc/containerd/d/{n}"), "")).collect();
        let mut files: Vec<(&str, &str)> = many.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.push((MAIN, "imports = ['d/*']"));
        assert_eq!(
            read(&node(&files)),
            Err(("/etc/containerd/d/*".to_owned(), ReadError::TooMany(MAX_FILES)))
        );
        assert_eq!(read(&node(&[])), Ok(None));
    }

    #[test]
    fn patterns_are_as_in_go() {
        let is = |pattern: &str, name: &str| {
            steps(pattern).map(|steps| fits(&steps, &name.chars().collect::<Vec<_>>()))
        };
        for (pattern, name) in [
            ("*", ""),
            ("*", ".hidden"),
            ("*.toml", "a.toml"),
            ("a*b*c", "aXbYbZc"),
            ("?[0-9]*", "x7"),
            ("[^a-c]*", "d"),
            ("\\**", "*x"),
            ("[\\]]*", "]"),
        ] {
            assert_eq!(is(pattern, name), Some(true), "{pattern} {name}");
        }
        for (pattern, name) in [("*.toml", "a.conf"), ("a*b", "acbd"), ("[a-c]", "d"), ("?", ""), ("", "x")] {
            assert_eq!(is(pattern, name), Some(false), "{pattern} {name}");
        }
        for bad in ["[", "[]", "[a", "[a-", "[-a]", "\\"] {
            assert_eq!(is(bad, "a"), None, "{bad}");
        }
        assert_eq!(clean(Path::new("/a/./b/../../../c")), Path::new("/c"));
    }

    proptest! {
        #[test]
        fn no_pattern_is_too_strange(pattern in "[a*?^\\[\\]\\\\-]{0,12}", name in "[ab]{0,40}") {
            steps(&pattern).map(|steps| fits(&steps, &name.chars().collect::<Vec<_>>()));
        }
    }
}
