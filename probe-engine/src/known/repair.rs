//! The commands of a known problem, for this node and this finding.
//!
//! In a line, `{name}` stands for a part of the words, a member of the finding, or a word of the node:
//! [`OWN`]. Each value is quoted, so files write it bare. A line with a name that is unknown here is left out.

use serde_json::Value;

use super::{
    file::{FileError, Problem},
    matching::{Match, reach},
    pattern::is_name,
};
use crate::{
    model::change::Finding,
    words::shell::{UNPRINTABLE, crictl, journal, quoted},
};

/// The words of the node.
const OWN: [&str; 9] =
    ["crictl", "journal", "kubelet_dir", "conf_dir", "bin_dirs", "node", "namespace", "pod", "sandbox"];
/// The members of findings that repairs name.
const MEMBERS: [&str; 3] = ["cache_file", "path", "id"];
/// A line with it is repeated for each runtime.
const OF_RUNTIME: &str = "{crictl}";

enum Token<'a> {
    Text(&'a str),
    Name(&'a str),
}

enum Filled {
    Line(String),
    /// A value could act on a terminal.
    Unprintable,
    /// A value is not known.
    Unknown,
}

/// Returns the problem's lines for this finding. Comments stand before their commands, and are left out with
/// them.
pub(super) fn lines(found: &Match<'_>, finding: &Finding, node: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut comments = Vec::new();
    let mut is_after_command = false;
    for line in &found.problem.repair {
        if line.starts_with('#') {
            if is_after_command {
                comments.clear();
                is_after_command = false;
            }
            comments.extend(fill(line, "", found, finding, node).line());
            continue;
        }
        is_after_command = true;
        let runtimes: Vec<String> =
            if line.contains(OF_RUNTIME) { crictl(&finding.runtimes).collect() } else { vec![String::new()] };
        for crictl in &runtimes {
            if let Some(command) = fill(line, crictl, found, finding, node).line() {
                all.append(&mut comments);
                all.push(command);
            }
        }
    }
    if !is_after_command {
        all.append(&mut comments);
    }
    all
}

/// Checks that each name in braces is known for every finding that the problem may be.
pub(super) fn check(problem: &Problem) -> Result<(), FileError> {
    for line in &problem.repair {
        let tokens = tokens(line).ok_or_else(|| FileError::Brace { line: line.clone() })?;
        for token in tokens {
            let Token::Name(name) = token else { continue };
            let is_part = problem.patterns().next().is_some()
                && problem.patterns().all(|pattern| pattern.names().any(|part| part == name));
            if !is_part && !OWN.contains(&name) && !MEMBERS.contains(&name) {
                return Err(FileError::UnknownPart { part: name.to_owned() });
            }
        }
    }
    Ok(())
}

impl Filled {
    fn line(self) -> Option<String> {
        match self {
            Self::Line(line) => Some(line),
            Self::Unprintable => Some(UNPRINTABLE.to_owned()),
            Self::Unknown => None,
        }
    }
}

fn fill(line: &str, crictl: &str, found: &Match<'_>, finding: &Finding, node: &str) -> Filled {
    let mut text = String::new();
    for token in tokens(line).unwrap_or_default() {
        let name = match token {
            Token::Text(part) => {
                text += part;
                continue;
            }
            Token::Name("crictl") => {
                text += crictl;
                continue;
            }
            Token::Name("journal") => {
                text += &journal();
                continue;
            }
            Token::Name("bin_dirs") => {
                let Some(folders) =
                    finding.folders.plugins.iter().map(|it| quoted(it)).collect::<Option<Vec<_>>>()
                else {
                    return Filled::Unprintable;
                };
                text += &folders.join(" ");
                continue;
            }
            Token::Name(name) => name,
        };
        let Some(value) = value(name, found, finding, node) else { return Filled::Unknown };
        let Some(word) = quoted(&value) else { return Filled::Unprintable };
        text += &word;
    }
    Filled::Line(text)
}

fn value(name: &str, found: &Match<'_>, finding: &Finding, node: &str) -> Option<String> {
    if let Some((_, part)) = found.parts.iter().find(|(part, _)| *part == name) {
        return Some((*part).to_owned());
    }
    match name {
        "kubelet_dir" => finding.folders.kubelet.clone(),
        "conf_dir" => Some(finding.folders.networks.first()?.clone()),
        "node" => Some(node.to_owned()),
        "namespace" => finding.pod.as_ref()?.namespace.clone(),
        "pod" => finding.pod.as_ref()?.name.clone(),
        "sandbox" => Some(finding.sandboxes.first()?.to_string()),
        _ => match reach(&found.members, name).first()? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        },
    }
}

/// Takes a line apart. `{{` and `}}` are braces. `None`: a brace has no partner.
fn tokens(line: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        tokens.push(Token::Text(before));
        if brace.starts_with("{{") || brace.starts_with("}}") {
            tokens.push(Token::Text(&brace[..1]));
            rest = &brace[2..];
        } else {
            let (name, after) = brace.strip_prefix('{')?.split_once('}')?;
            if !is_name(name) {
                return None;
            }
            tokens.push(Token::Name(name));
            rest = after;
        }
    }
    tokens.push(Token::Text(rest));
    Some(tokens)
}
