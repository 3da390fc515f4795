//! The file of one known problem (docs/known.md has the format).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::VariantNames as _;

use super::{
    pattern::Pattern,
    release::Fix,
    template::{MEMBERS, OWN, names, quoted_name, tokens},
};
use crate::model::{fact::Speaker, finding::Kind};

/// The ids and texts of the files that this program brings, each with a NUL after it; packed.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/known.lz4"));

/// Returns the problems that this program brings.
pub(super) fn built_in() -> Vec<Problem> {
    let unpacked = lz4_flex::block::decompress_size_prepended(PACKED).expect("the build script packed it");
    let text = String::from_utf8(unpacked).expect("the files are UTF-8");
    let mut parts = text.split_terminator('\0');
    let mut all = Vec::new();
    while let (Some(id), Some(text)) = (parts.next(), parts.next()) {
        // A test reads each of them.
        all.extend(Problem::parse(id, text));
    }
    all
}

/// A problem that others have had too.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The name of its file without `.toml`. It never changes.
    pub id: String,
    /// What is wrong, in one line.
    pub title: String,
    /// Why, in one sentence.
    pub cause: String,
    /// Lines for a root shell. Names in braces stand for parts of the words and members of the finding.
    pub repair: Vec<String>,
    /// Upstream's reports.
    pub links: Vec<String>,
    /// A story in which it is found, and one of a healthy node that looks like it.
    pub story: Option<String>,
    pub twin: Option<String>,
    /// What it looks like. One of them is enough.
    #[serde(rename = "match")]
    pub conditions: Vec<Condition>,
    /// The programs whose later versions do not have it.
    #[serde(rename = "program", default, skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<Fix>,
}

/// What a finding must be and have, all of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// One of these kinds.
    #[serde(rename = "finding")]
    pub kinds: Vec<String>,
    /// Members of its detail with one of these values. `a.b` is the member `b` of the object `a`, or of any
    /// object in the list `a`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, Vec<String>>,
    /// Members that must be there and not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub has: Vec<String>,
    /// Members that must not be there, or be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// The runtime that must have taken part, by the name of its executable, unless it is unknown which one
    /// did.
    pub runtime: Option<String>,
    /// Who must have said the words.
    pub from: Option<Speaker>,
    pub words: Option<Pattern>,
    /// A real message that the words match, and where it was quoted.
    pub says: Option<String>,
    pub source: Option<String>,
    /// The id of a problem whose message looks alike, and is not this one's.
    pub unlike: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("line {line}: {message}")]
    Toml { line: usize, message: String },
    #[error("its id is {0}, but the file has another name")]
    OtherName(String),
    #[error("it needs a [[match]], or it is never found")]
    NoCondition,
    #[error("a [[match]] needs finding: the kinds of findings that it is for")]
    NoKind,
    #[error("{kind} is no kind of finding")]
    UnknownKind { kind: String },
    #[error("an id has small letters, digits and hyphens")]
    NoId,
    #[error("{text} has characters that are not printable ASCII")]
    Unprintable { text: String },
    #[error("{{{name}}} stands between quotes, and its value is quoted already: write it bare")]
    QuotedName { name: String },
    #[error("$'...' is not a form of every shell: {line}")]
    DollarQuote { line: String },
    #[error("{{crictl}} in a comment: write crictl")]
    CrictlInComment,
    #[error("{link} does not begin with https://")]
    NoLink { link: String },
    #[error("a [[match]] with words needs from")]
    NoSpeaker,
    #[error(
        "{{{part}}} in its repair is neither a part of all its words, nor a member, nor a word of the node"
    )]
    UnknownPart { part: String },
    #[error("its repair has a brace without a partner: {line}")]
    Brace { line: String },
    #[error("the releases of {program} are not in order, one of each line")]
    Releases { program: String },
}

impl Problem {
    /// Parses the file with the name `ID.toml`.
    pub fn parse(id: &str, text: &str) -> Result<Self, FileError> {
        let problem: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            FileError::Toml { line: before.matches('\n').count() + 1, message: error.message().to_owned() }
        })?;
        if problem.id != id {
            return Err(FileError::OtherName(problem.id));
        }
        if !id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
            return Err(FileError::NoId);
        }
        problem.check_texts()?;
        if problem.conditions.is_empty() {
            return Err(FileError::NoCondition);
        }
        for condition in &problem.conditions {
            if condition.kinds.is_empty() {
                return Err(FileError::NoKind);
            }
            for kind in &condition.kinds {
                if !Kind::VARIANTS.contains(&&**kind) {
                    return Err(FileError::UnknownKind { kind: kind.clone() });
                }
            }
            if condition.words.is_some() && condition.from.is_none() {
                return Err(FileError::NoSpeaker);
            }
        }
        let mut links = problem.links.iter().chain(problem.fixes.iter().map(|fix| &fix.source));
        if let Some(link) = links.find(|link| !link.starts_with("https://")) {
            return Err(FileError::NoLink { link: link.clone() });
        }
        if let Some(fix) = problem.fixes.iter().find(|fix| !fix.is_in_order()) {
            return Err(FileError::Releases { program: fix.name.clone() });
        }
        problem.check_repair()?;
        Ok(problem)
    }

    /// Checks that nothing in its texts acts on a terminal, or ends a line.
    fn check_texts(&self) -> Result<(), FileError> {
        let own = [&self.id, &self.title, &self.cause];
        let of_fixes = self.fixes.iter().flat_map(|fix| [&fix.name, &fix.what, &fix.source]);
        for text in own.into_iter().chain(&self.repair).chain(&self.links).chain(of_fixes) {
            if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(FileError::Unprintable { text: text.escape_default().to_string() });
            }
        }
        Ok(())
    }

    /// Checks that each name in its repair is known for every finding that it may be.
    fn check_repair(&self) -> Result<(), FileError> {
        for line in &self.repair {
            if tokens(line).is_none() {
                return Err(FileError::Brace { line: line.clone() });
            }
            let is_comment = line.starts_with('#');
            if !is_comment && line.contains("$'") {
                return Err(FileError::DollarQuote { line: line.clone() });
            }
            if !is_comment && let Some(name) = quoted_name(line) {
                return Err(FileError::QuotedName { name: name.to_owned() });
            }
            for name in names(line) {
                if is_comment && name == "crictl" {
                    return Err(FileError::CrictlInComment);
                }
                let is_part = self.patterns().next().is_some()
                    && self.patterns().all(|pattern| pattern.names().any(|part| part == name));
                if !is_part && !OWN.contains(&name) && !MEMBERS.contains(&name) {
                    return Err(FileError::UnknownPart { part: name.to_owned() });
                }
            }
        }
        Ok(())
    }

    /// Whether sandprobe can find it: the words that it needs are read.
    #[must_use]
    pub fn is_looked_for(&self) -> bool {
        self.conditions.iter().any(|condition| {
            let mut kinds = condition.kinds.iter();
            match (&condition.words, condition.from) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(_), Some(Speaker::Plugin)) => kinds.any(|kind| kind == "cni_failing"),
                (Some(_), Some(Speaker::Runtime | Speaker::Kubelet)) => {
                    kinds.any(|kind| matches!(&**kind, "stuck_start" | "stuck_stop" | "daemon_failing"))
                }
            }
        })
    }

    /// Returns the kinds of findings that it can be, each once.
    #[must_use]
    pub fn kinds(&self) -> Vec<&str> {
        let kinds: BTreeSet<&str> =
            self.conditions.iter().flat_map(|condition| condition.kinds.iter().map(|kind| &**kind)).collect();
        kinds.into_iter().collect()
    }

    /// Returns its patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.conditions.iter().filter_map(|condition| condition.words.as_ref())
    }
}
