//! The metrics and labels that an expression names. promtool checks the syntax.

use std::collections::BTreeSet;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Each metric with the labels of its selector.
    pub(crate) metrics: Vec<(String, BTreeSet<String>)>,
    /// The labels in groupings.
    pub(crate) grouped: BTreeSet<String>,
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const WORDS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];

pub(crate) fn named(expression: &str) -> Named {
    let mut found = Named::default();
    let mut tokens = tokens(expression).into_iter().peekable();
    while let Some(token) = tokens.next() {
        if GROUPING.contains(&token.as_str()) {
            if tokens.next_if_eq("(").is_some() {
                found.grouped.extend(tokens.by_ref().take_while(|it| it != ")").filter(|it| is_name(it)));
            }
        } else if is_name(&token)
            && !WORDS.contains(&token.as_str())
            && tokens.peek().is_none_or(|it| it != "(")
        {
            // A grouping may be between a function's name and its argument.
            if tokens.peek().is_some_and(|it| GROUPING.contains(&it.as_str())) {
                continue;
            }
            let mut labels = BTreeSet::new();
            if tokens.next_if_eq("{").is_some() {
                labels.extend(tokens.by_ref().take_while(|it| it != "}").filter(|it| is_name(it)));
            }
            found.metrics.push((token, labels));
        }
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Returns the names, and every other character by itself. Strings, ranges and numbers are left out.
fn tokens(expression: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' | '\'' => drop(rest.by_ref().find(|it| *it == c)),
            '[' => drop(rest.by_ref().find(|it| *it == ']')),
            c if c.is_ascii_alphanumeric() || c == '_' => {
                let mut word = c.to_string();
                while let Some(more) =
                    rest.next_if(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | ':'))
                {
                    word.push(more);
                }
                if is_name(&word) {
                    tokens.push(word);
                }
            }
            c if c.is_whitespace() => {}
            c => tokens.push(c.to_string()),
        }
    }
    tokens
}

#[test]
fn metrics_and_labels_are_found() {
    let found = named(
        "sum by (le, phase) (rate(a_bucket{x=\"by (z)\", y!~'b'}[5m])) / on () group_left () max(b) > 0.5 * c offset 6h",
    );
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let metric = |name: &str, labels: &[&str]| (name.to_owned(), set(labels));
    assert_eq!(found.metrics, [metric("a_bucket", &["x", "y"]), metric("b", &[]), metric("c", &[])]);
    assert_eq!(found.grouped, set(&["le", "phase"]));
}
