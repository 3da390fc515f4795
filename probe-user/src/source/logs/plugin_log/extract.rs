//! Extracts the plugin's message from a log line, whatever the levels of quoting.
//!
//! libcni (1.0 and later) puts `plugin type="bridge" failed (add): ` before it, or `failed (delete): `. A
//! delegating plugin does this for its delegate, so the last prefix names the plugin that failed. Each
//! program that passes an error on may quote it again.

use super::{TEXT, Wanted};
use crate::model::fact::CniCommand;

/// How a line matches the sandbox; later variants are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    /// The line names the pod, which may have had several sandboxes.
    Pod,
    Sandbox,
}

const PLUGIN: &str = "plugin type=";
/// The words about a failed call.
struct Words {
    /// libcni's words.
    failed: &'static str,
    /// The prefixes of containerd and CRI-O, each before a quoted name. With an older libcni they are the
    /// only ones.
    prefixes: [&'static str; 2],
}

const ADD: Words = Words {
    failed: " failed (add): ",
    prefixes: ["failed to setup network for sandbox ", " to CNI network "],
};
const DEL: Words = Words {
    failed: " failed (delete): ",
    prefixes: ["failed to destroy network for sandbox ", " from CNI network "],
};
/// The most levels of quoting. No log has more.
const DEPTH: usize = 5;

impl Words {
    fn of(command: CniCommand) -> &'static Self {
        match command {
            CniCommand::Add => &ADD,
            CniCommand::Del => &DEL,
        }
    }

    fn may_be_in(&self, line: &str) -> bool {
        line.contains(self.failed) || self.prefixes.iter().any(|prefix| line.contains(prefix))
    }
}

/// Returns whether the line can be about a failed call. This cheap test excludes most lines.
pub(super) fn may_be(line: &str) -> bool {
    [&ADD, &DEL].iter().any(|words| words.may_be_in(line))
}

/// Returns the message in the line, if it is about the wanted call.
pub(super) fn message(line: &str, wanted: Wanted<'_>) -> Option<(Match, String)> {
    let words = Words::of(wanted.command);
    if !words.may_be_in(line) {
        return None;
    }
    let quality = quality(line, wanted)?;
    let text = failed(line, words).or_else(|| after_prefix(line, words))?;
    (!text.is_empty()).then_some((quality, text))
}

fn quality(line: &str, wanted: Wanted<'_>) -> Option<Match> {
    if !wanted.sandbox.is_empty() && line.contains(wanted.sandbox) {
        return Some(Match::Sandbox);
    }
    let (namespace, name) = wanted.pod.filter(|(_, name)| !name.is_empty())?;
    // The forms of ocicni, and of the kubelet: `NAME_NAMESPACE(UID)` and `NAMESPACE/NAME`.
    let ways =
        [format!("{namespace}_{name} "), format!("{name}_{namespace}("), format!("{namespace}/{name}\"")];
    ways.iter().any(|way| has_word(line, way)).then_some(Match::Pod)
}

/// Returns whether a line has the word, but not as the end of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
    })
}

/// Returns the text from the last `plugin type=` of a failed call to the end of the string that holds it.
fn failed(line: &str, words: &Words) -> Option<String> {
    let starts = line.match_indices(PLUGIN).map(|(at, _)| at).filter(|at| {
        let rest = &line[at + PLUGIN.len()..];
        // Only the plugin's quoted name and perhaps its network's may be in between, not another plugin's.
        rest.find(words.failed)
            .is_some_and(|end| !rest[..end].contains(PLUGIN) && !rest[..end].contains(": "))
    });
    let start = starts.last()?;
    let text = &line[start..];
    let quotes = text[PLUGIN.len()..].bytes().take_while(|byte| *byte == b'\\').count();
    Some(clean(text, quotes))
}

/// Returns the text after the quoted name.
fn after_prefix(line: &str, words: &Words) -> Option<String> {
    let (_, rest) = words.prefixes.iter().find_map(|prefix| line.rsplit_once(prefix))?;
    let quotes = rest.bytes().take_while(|byte| *byte == b'\\').count();
    let (_, text) = rest.split_once("\": ")?;
    Some(clean(text, quotes))
}

/// Returns the text up to the closing quote of a string around it, unquoted and shortened.
///
/// The text's own quotes follow `own` backslashes (none, 1, 3, 7 and so on); the quotes of the string around
/// it follow fewer.
fn clean(text: &str, own: usize) -> String {
    let mut backslashes = 0;
    let mut end = text.len();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\\' => backslashes += 1,
            b'"' if backslashes < own => {
                end = at - backslashes;
                break;
            }
            _ => backslashes = 0,
        }
    }
    let mut text = text[..end].to_owned();
    let mut own = own;
    for _ in 0..DEPTH {
        if own == 0 {
            break;
        }
        text = unquote(&text);
        own /= 2;
    }
    plain_line(text.trim())
}

/// Removes all levels of quoting from a text, and makes one line of it, shortened.
pub(crate) fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..DEPTH {
        if !text.contains("\\\"") {
            break;
        }
        text = unquote(&text);
    }
    plain_line(text.trim())
}

/// Removes one level of quoting by `strconv.Quote` or JSON.
pub(crate) fn unquote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match if c == '\\' { chars.next() } else { None } {
            None => out.push(c),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(quoted @ ('"' | '\\' | '/')) => out.push(quoted),
            Some(form @ ('u' | 'x')) => {
                let rest = chars.as_str();
                let length = if form == 'u' { 4 } else { 2 };
                let code = rest.get(..length).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                // A byte from 0x80 on is a part of a character, or of none.
                let code = code.filter(|code| form == 'u' || *code < 0x80);
                match code.and_then(char::from_u32) {
                    Some(c) => {
                        out.push(c);
                        chars = rest[length..].chars();
                    }
                    None => out.extend(['\\', form]),
                }
            }
            Some(other) => out.extend(['\\', other]),
        }
    }
    out
}

/// Makes one line of plain text, shortened.
fn plain_line(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let before = out.len();
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        if out.len() > TEXT {
            out.truncate(before);
            break;
        }
    }
    out
}

/// Returns whether the character changes how the rest of the line is shown: directions of writing, line
/// separators, joiners.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
