//! The commands of a known problem, for this node and this finding. Each value is quoted, so files write its
//! name bare. A line with a name that is not known here is left out.

use serde_json::Value;

use super::{
    matching::{Match, reach},
    template::{Token, tokens},
};
use crate::{
    model::change::Finding,
    words::shell::{UNPRINTABLE, crictl, journal, quoted},
};

/// A line with it is repeated for each runtime.
const OF_RUNTIME: &str = "{crictl}";

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
