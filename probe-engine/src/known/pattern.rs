//! The pattern of a message: the message itself, with `{name}` or `{name:class}` where it varies, and `{*}`
//! for anything. It is no regular expression, so that one can copy a line from a log and mark what varies,
//! and so that nothing in it can be slow.

use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{EnumString, IntoStaticStr};

/// The first literal is looked for at this many places of a message.
const MAX_PLACES: usize = 32;
const MAX_PARTS: usize = 8;
const MAX_BYTES: usize = 256;
/// The minimum length of the first literal, unless all literals together have [`MIN_LITERALS`]. A shorter
/// one would match messages of other problems.
const MIN_FIRST: usize = 8;
const MIN_LITERALS: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, DeserializeFromStr, SerializeDisplay)]
pub struct Pattern {
    text: String,
    /// It begins with this literal.
    first: String,
    rest: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Part { name: Option<String>, class: Class },
}

/// The characters of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Class {
    /// Letters, digits, `.`, `_` and `-`.
    #[default]
    Word,
    /// A slash, and then anything but white space, quotes, commas and brackets.
    Path,
    Number,
    /// Digits of an address, with `.`, `:` and `/`.
    Address,
    /// Anything but white space, quotes, commas and brackets.
    Token,
    /// Anything, also nothing.
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a pattern consists of printable ASCII characters")]
    NotAscii,
    #[error("a pattern has at most {MAX_BYTES} bytes and {MAX_PARTS} parts")]
    TooLong,
    #[error(
        "a pattern begins with a literal of {MIN_FIRST} bytes or more, or has literals of {MIN_LITERALS} bytes"
    )]
    TooShort,
    #[error("two parts of a pattern stand side by side, so it is unknown where the first one ends")]
    NoLiteralBetween,
    #[error("{0} is no part: use {{name}}, {{name:class}} or {{*}}, and {{{{ or }}}} for a brace")]
    NotAPart(String),
    #[error("{0} is no class of a part: use word, path, number, address, token or text")]
    NotAClass(String),
    #[error("the part {0} stands in the pattern twice")]
    Twice(String),
}

impl Pattern {
    /// Returns the parts of the first place in `text` that the pattern matches, by name.
    #[must_use]
    pub fn find<'a>(&'a self, text: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let mut rest = text;
        for _place in 0..MAX_PLACES {
            let at = rest.find(&self.first)?;
            if let Some(parts) = self.parts(&rest[at + self.first.len()..]) {
                return Some(parts);
            }
            // The literal is ASCII.
            rest = &rest[at + 1..];
        }
        None
    }

    /// Takes each part up to the next literal. A part at the end is as long as its class allows.
    fn parts<'a>(&'a self, mut text: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let mut parts = Vec::new();
        let mut pieces = self.rest.iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Literal(literal) => text = text.strip_prefix(literal.as_str())?,
                Piece::Part { name, class } => {
                    let end = match pieces.peek() {
                        Some(Piece::Literal(next)) => text.find(next.as_str())?,
                        Some(Piece::Part { .. }) | None => class.longest(text),
                    };
                    let (part, after) = text.split_at(end);
                    if !class.admits(part) {
                        return None;
                    }
                    parts.extend(name.as_deref().map(|name| (name, part)));
                    text = after;
                }
            }
        }
        Some(parts)
    }

    /// Returns the names of its parts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rest.iter().filter_map(|piece| match piece {
            Piece::Part { name, .. } => name.as_deref(),
            Piece::Literal(_) => None,
        })
    }

    /// Returns the number of bytes of its literals. Of two patterns that match, the one with more says more.
    #[must_use]
    pub fn weight(&self) -> usize {
        let mut weight = self.first.len();
        for piece in &self.rest {
            if let Piece::Literal(literal) = piece {
                weight += literal.len();
            }
        }
        weight
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(PatternError::NotAscii);
        }
        let mut pieces = pieces(text)?;
        let parts = pieces.iter().filter(|piece| matches!(piece, Piece::Part { .. })).count();
        if text.len() > MAX_BYTES || parts > MAX_PARTS {
            return Err(PatternError::TooLong);
        }
        if pieces.windows(2).any(|two| matches!(two, [Piece::Part { .. }, Piece::Part { .. }])) {
            return Err(PatternError::NoLiteralBetween);
        }
        let rest = pieces.split_off(pieces.len().min(1));
        let Some(Piece::Literal(first)) = pieces.pop() else { return Err(PatternError::TooShort) };
        let pattern = Self { text: text.to_owned(), first, rest };
        if pattern.first.len() < MIN_FIRST && pattern.weight() < MIN_LITERALS {
            return Err(PatternError::TooShort);
        }
        let mut names: Vec<&str> = pattern.names().collect();
        names.sort_unstable();
        match names.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(PatternError::Twice(two[0].to_owned())),
            None => Ok(pattern),
        }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, PatternError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal += &rest[..at];
        let brace = &rest[at..];
        if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
            literal += &brace[..1];
            rest = after;
            continue;
        }
        let part = brace.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let Some((inner, after)) = part else { return Err(PatternError::NotAPart(brace.to_owned())) };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(part_of(inner)?);
        rest = after;
    }
    literal += rest;
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// Parses what stands between the braces.
fn part_of(inner: &str) -> Result<Piece, PatternError> {
    if inner == "*" {
        return Ok(Piece::Part { name: None, class: Class::Text });
    }
    let (name, class) = match inner.split_once(':') {
        Some((name, class)) => {
            (name, Class::from_str(class).map_err(|_unknown| PatternError::NotAClass(class.to_owned()))?)
        }
        None => (inner, Class::default()),
    };
    if !is_name(name) {
        return Err(PatternError::NotAPart(format!("{{{inner}}}")));
    }
    Ok(Piece::Part { name: Some(name.to_owned()), class })
}

/// Whether `text` can be the name of a part: small letters and `_`.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

impl Class {
    fn has(self, letter: char) -> bool {
        let is_inside = !letter.is_whitespace() && !"\"',[]()".contains(letter);
        match self {
            Self::Word => letter.is_ascii_alphanumeric() || "._-".contains(letter),
            Self::Number => letter.is_ascii_digit(),
            Self::Address => letter.is_ascii_hexdigit() || ".:/".contains(letter),
            Self::Path | Self::Token => is_inside,
            Self::Text => true,
        }
    }

    fn admits(self, part: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Path => part.starts_with('/') && part.chars().all(|letter| self.has(letter)),
            Self::Word | Self::Number | Self::Address | Self::Token => {
                !part.is_empty() && part.chars().all(|letter| self.has(letter))
            }
        }
    }

    /// Returns how many bytes at the beginning of `text` are of this class.
    fn longest(self, text: &str) -> usize {
        text.find(|letter| !self.has(letter)).unwrap_or(text.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Pattern, PatternError};

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn parts_are_what_stands_between_the_literals() {
        let it = pattern(
            r#"failed to set bridge addr: "{bridge}" already has an IP address different from {at:address}"#,
        );
        let said = r#"add: failed to set bridge addr: "cni0" already has an IP address different from 10.1.0.1/24, gone"#;
        assert_eq!(it.find(said), Some(vec![("bridge", "cni0"), ("at", "10.1.0.1/24")]));
        assert_eq!(it.find("failed to set bridge addr: no such device"), None);
        let other = r#"failed to set bridge addr: "a b" already has an IP address different from 10.1.0.1"#;
        assert_eq!(it.find(other), None, "a word has no spaces");
    }

    #[test]
    fn a_later_place_is_tried_if_the_first_does_not_fit() {
        let it = pattern("failed to mount {what:path}: {*}");
        assert_eq!(it.find("failed to mount: failed to mount /a/b: busy"), Some(vec![("what", "/a/b")]));
        assert_eq!(it.find(&"failed to mount ".repeat(40)), None);
    }

    #[test]
    fn braces_stand_for_themselves_if_doubled() {
        assert_eq!(
            pattern("unexpected {{}} at {n:number}").find("unexpected {} at 7é"),
            Some(vec![("n", "7")])
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, error) in [
            ("short", PatternError::TooShort),
            ("{a} and then a literal that is long", PatternError::TooShort),
            ("", PatternError::TooShort),
            ("a literal {a}{b}", PatternError::NoLiteralBetween),
            ("a literal {a} and {a}", PatternError::Twice("a".to_owned())),
            ("a literal {a", PatternError::NotAPart("{a".to_owned())),
            ("a literal a}", PatternError::NotAPart("}".to_owned())),
            ("a literal {A}", PatternError::NotAPart("{A}".to_owned())),
            ("a literal {a:digits}", PatternError::NotAClass("digits".to_owned())),
            ("a literal é", PatternError::NotAscii),
        ] {
            assert_eq!(text.parse::<Pattern>(), Err(error), "{text}");
        }
        let long = "x".repeat(257);
        assert_eq!(long.parse::<Pattern>(), Err(PatternError::TooLong));
    }

    proptest! {
        #[test]
        fn any_pattern_ends_on_any_text(pattern: String, text: String) {
            if let Ok(pattern) = pattern.parse::<Pattern>() {
                _ = pattern.find(&text);
            }
        }

        #[test]
        fn what_it_finds_was_said(before in "[ -~]{0,9}", word in "[a-z0-9.-]{1,9}", after in "[ -~é]{0,9}") {
            let text = format!("{before}cannot pull {word}: {after}");
            let it = pattern("cannot pull {image}: {*}");
            prop_assert!(it.find(&text).is_some(), "{text}");
        }
    }
}
