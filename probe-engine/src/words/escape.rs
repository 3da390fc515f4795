//! Escapes text from outside, so that it is safe to show on a terminal.

use std::borrow::Cow;

use crate::model::finding::Key;

/// Escapes every character that a terminal would interpret, or that could reorder what it shows.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Whether it is a control character, changes the direction of writing, or is invisible, as fillers,
/// variation selectors and tags are (Unicode TR 36): words that only a program reads can be made of them.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// How many digits of an id are shown.
const SHORT: usize = 12;
/// Hex digits in a row that are taken for an id, from this number on.
const LONG: usize = 40;

/// Cuts each container id in `text` (64 hex digits, in paths and arguments) to the shown length.
#[must_use]
pub fn brief(text: &str) -> String {
    cut_ids(text, "…")
}

/// Shortens a key so that it fits on a line and can be typed. It still finds the same finding.
#[must_use]
pub fn short_key(key: &Key) -> String {
    cut_ids(&escaped(key.as_str()), "")
}

fn cut_ids(text: &str, mark: &str) -> String {
    let mut brief = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(start);
        let len = from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(len);
        brief.push_str(before);
        if len >= LONG {
            brief.push_str(&digits[..SHORT]);
            brief.push_str(mark);
        } else {
            brief.push_str(digits);
        }
        rest = after;
    }
    brief + rest
}

#[cfg(test)]
mod tests {
    use super::{brief, escaped};

    #[test]
    fn ids_are_cut_and_nothing_else() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(brief(&format!("/pods/{id}/log {id}.json")), "/pods/0123456789ab…/log 0123456789ab….json");
        for text in ["", "/run/netns/cni-732a3502-465b-a03e-d378-7a202ec44c33", "é deadbeef 漢"] {
            assert_eq!(brief(text), text);
        }
    }

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(escaped("web-0 é 漢"), "web-0 é 漢");
        assert_eq!(escaped("a\x1b[2Jb\r\n\u{9b}"), "a\\u{1b}[2Jb\\r\\n\\u{9b}");
        assert_eq!(escaped("\u{202e}exe.fdp"), "\\u{202e}exe.fdp");
    }

    #[test]
    fn nothing_is_invisible() {
        for c in [
            '\u{34f}',
            '\u{115f}',
            '\u{1160}',
            '\u{3164}',
            '\u{ffa0}',
            '\u{180e}',
            '\u{2060}',
            '\u{2064}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e01ef}',
            '\u{ad}',
            '\u{200d}',
        ] {
            assert_eq!(escaped(&format!("a{c}")), format!("a\\u{{{:x}}}", u32::from(c)));
        }
    }
}
