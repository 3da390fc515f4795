//! The commands of a known problem, for this node and this finding. Each value is quoted, so files write its
//! name bare. A line with a name that is not known here is left out.

use serde_json::Value;

use super::{
    matching::{Matches, Named, reach},
    template::{Token, names, tokens},
};
use crate::{
    model::change::Finding,
    words::shell::{UNPRINTABLE, crictl, journal, quoted},
};

/// A line with this name is repeated for each runtime.
const CRICTL: &str = "crictl";
/// Where most runtimes look for plugins, if this node's runtime has not said it (libcni's `DefaultBinDir`).
const PLUGINS: &str = "/opt/cni/bin";

enum Filled {
    Line(String),
    /// A value could act on a terminal.
    Unprintable,
    /// A value is not known.
    Unknown,
}

/// Returns the lines of the problem that was named. Comments stand before their commands, and are left out
/// with them.
pub(super) fn lines(matches: &Matches<'_>, finding: &Finding, node: &str) -> Vec<String> {
    let Some(Named { problem, parts }) = &matches.named else { return Vec::new() };
    let values = Values { parts, members: &matches.members, finding, node };
    let mut all = Vec::new();
    let mut comments = Vec::new();
    let mut is_after_command = false;
    for line in &problem.repair {
        if line.starts_with('#') {
            if is_after_command {
                comments.clear();
                is_after_command = false;
            }
            comments.extend(values.fill(line, "crictl").line());
            continue;
        }
        is_after_command = true;
        let mut runtimes: Vec<String> = crictl(&finding.runtimes).collect();
        if !names(line).any(|name| name == CRICTL) {
            runtimes.truncate(1);
        }
        for crictl in &runtimes {
            if let Some(command) = values.fill(line, crictl).line() {
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

/// The values of names.
struct Values<'a> {
    parts: &'a [(&'a str, &'a str)],
    members: &'a Value,
    finding: &'a Finding,
    node: &'a str,
}

impl Values<'_> {
    fn fill(&self, line: &str, crictl: &str) -> Filled {
        let mut text = String::new();
        for token in tokens(line).unwrap_or_default() {
            let name = match token {
                Token::Text(part) => {
                    text += part;
                    continue;
                }
                Token::Name(name) => name,
            };
            match name {
                CRICTL => text += crictl,
                "journal" => text += &journal(),
                _ => {
                    let values = self.of(name);
                    if values.is_empty() {
                        return Filled::Unknown;
                    }
                    for (index, value) in values.iter().enumerate() {
                        // A command would take it for an option, or for another folder.
                        if value.is_empty() || value.starts_with(['-', '.']) {
                            return Filled::Unknown;
                        }
                        let Some(word) = quoted(value) else { return Filled::Unprintable };
                        if index > 0 {
                            text.push(' ');
                        }
                        text += &word;
                    }
                }
            }
        }
        Filled::Line(text)
    }

    /// Returns the values of a name: several if it stands for several folders, none if it is unknown.
    fn of(&self, name: &str) -> Vec<String> {
        if let Some((_, part)) = self.parts.iter().find(|(part, _)| *part == name) {
            return vec![(*part).to_owned()];
        }
        let Finding { pod, sandboxes, folders, .. } = self.finding;
        let value = match name {
            "bin_dirs" if folders.plugins.is_empty() => Some(PLUGINS.to_owned()),
            "bin_dirs" => return folders.plugins.clone(),
            "kubelet_dir" => folders.kubelet.clone(),
            "conf_dir" => folders.networks.first().cloned(),
            "node" => Some(self.node.to_owned()),
            "namespace" => pod.as_ref().and_then(|pod| pod.namespace.clone()),
            "pod" => pod.as_ref().and_then(|pod| pod.name.clone()),
            // If there are several, it is unknown which one the words are about.
            "sandbox" => (sandboxes.len() == 1).then(|| sandboxes[0].to_string()),
            _ => reach(self.members, name).first().and_then(|value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            }),
        };
        value.into_iter().collect()
    }
}
