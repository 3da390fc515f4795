//! What programs of the node say, as it is quoted in findings.

use crate::{
    model::fact::{Said, Speaker},
    words::escape::escaped,
};

pub(crate) const REPAIR_WHAT_IS_SAID: &str =
    "# Repair what the program that is quoted names. It tries again by itself.";

/// Returns the end of a sentence that quotes the most telling error. Empty: nothing was said.
pub(crate) fn quotation(said: &[Said]) -> String {
    let Some(first) = said.first() else { return String::new() };
    let by = match first.by {
        Speaker::Kubelet => "the kubelet says",
        Speaker::Runtime => "the runtime says",
        Speaker::Plugin => "the plugin says",
    };
    format!("; {by}: {}", escaped(&first.text))
}

/// Returns a comment that says where nothing was found.
pub(crate) fn nothing_said(unsaid: &str) -> String {
    format!("# sandprobe found no error about it: {}.", escaped(unsaid))
}

/// Leaves the most telling error, without when and where it was logged: the rest changes with each try.
pub(crate) fn forget_times(said: &mut Vec<Said>) {
    said.truncate(1);
    for it in said {
        it.at.clear();
        it.source.clear();
    }
}
