//! Rules for comments in Rust files. docs/style.md says how comments are written.

use super::Source;

/// A comment that opens with these words has no subject, or one that the reader must look for.
const OPENINGS: [&str; 7] = ["Of", "Those", "That of", "The same", "So many", "So long", "Told"];
/// rustfmt's limit for lines of code (`max_width` in rustfmt.toml), which it does not apply to comments.
const MAX_COLUMNS: usize = 110;

pub(super) fn problems(source: &Source) -> Vec<String> {
    if !source.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut found = openings(source);
    found.extend(columns(source));
    found
}

fn openings(Source { path, text }: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (line, at) in text.lines().zip(1..) {
        let words = words(line).filter(|words| !words.is_empty());
        if let Some(words) = words
            && !is_inside
            && let Some(opening) = OPENINGS.into_iter().find(|opening| opens_with(words, opening))
        {
            found.push(format!("{path}:{at}: a comment opens with {opening:?}: say who does what"));
        }
        is_inside = words.is_some();
    }
    found
}

fn columns(Source { path, text }: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (line, at) in text.lines().zip(1..) {
        let columns = line.chars().count();
        // A single word, such as a link, cannot be wrapped.
        if columns > MAX_COLUMNS && words(line).is_some_and(|words| words.contains(' ')) {
            found.push(format!("{path}:{at}: a comment of {columns} columns; {MAX_COLUMNS} are allowed"));
        }
    }
    found
}

/// Returns the words of a line if it is a comment.
fn words(line: &str) -> Option<&str> {
    let comment = line.trim_start().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim())
}

fn opens_with(words: &str, opening: &str) -> bool {
    let rest = words.strip_prefix(opening);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::{OPENINGS, Source, columns, openings};

    fn source(text: &str) -> Source {
        Source { path: "a.rs".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn comments_are_refused_by_their_first_words() {
        for opening in OPENINGS {
            for mark in ["//", "    ///", "//!"] {
                assert_eq!(openings(&source(&format!("{mark} {opening} it.\n"))).len(), 1, "{opening}");
            }
        }
        let text = "//! Why.\n//!\n//! Of that.\nfn f() {}\n// The same, later.\n";
        let found = openings(&source(text));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:3: ") && found[1].starts_with("a.rs:5: "), "{found:?}");
    }

    #[test]
    fn other_first_words_pass() {
        let text = "//! Offsets.\n// A pod has two:\n// Those of its sandbox.\n//\nlet a = \"// Of\";\n// So, many.\n";
        assert_eq!(openings(&source(text)), [""; 0]);
    }

    #[test]
    fn comments_have_a_width() {
        let line = |length: usize| format!("    // {}\n", "é ".repeat(length / 2));
        assert_eq!(columns(&source(&line(102))), [""; 0]);
        assert_eq!(columns(&source(&line(104))), ["a.rs:1: a comment of 111 columns; 110 are allowed"]);
        let code =
            format!("let a = \"{} b\";\n/// https://example.org/{}\n", "a".repeat(120), "a".repeat(120));
        assert_eq!(columns(&source(&code)), [""; 0]);
    }
}
