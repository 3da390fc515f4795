//! The answers of all nodes as one output.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Value};

use crate::sink::escape::escaped;

/// What the command printed on a node.
pub(super) struct Answer {
    pub(super) node: String,
    pub(super) text: String,
}

/// A remark about a node.
pub(super) struct Note {
    pub(super) node: String,
    pub(super) text: String,
}

/// How many nodes are named before a remark that several have.
const MAX_NAMED: usize = 10;

/// Returns a line for each remark, under the names of its nodes.
pub(super) fn notes(all: Vec<Note>) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Note { node, text } in all {
        groups.entry(text).or_default().push(node);
    }
    let mut lines = Vec::new();
    for (text, nodes) in groups {
        let more = match nodes.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let named: Vec<&str> = nodes.iter().take(MAX_NAMED).map(String::as_str).collect();
        lines.push(format!("{}{more}: {text}", named.join(", ")));
    }
    lines
}

/// Returns each text under the names of its nodes. Nodes with the same text share it: if all is well, that is
/// a single line.
pub(super) fn text(answers: &[Answer]) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Answer { node, text } in answers {
        groups.entry(text.as_str()).or_default().push(node);
    }
    let mut groups: Vec<(&str, Vec<&str>)> = groups.into_iter().collect();
    // Answers are in the order of their nodes, and so is each group.
    groups.sort_by(|(_, one), (_, other)| one.cmp(other));
    let mut whole = String::new();
    for (text, nodes) in groups {
        if !whole.is_empty() {
            whole.push('\n');
        }
        let count = if nodes.len() > 1 { format!(" ({} nodes)", nodes.len()) } else { String::new() };
        whole += &format!("== {}{count}\n", escaped(&nodes.join(", ")));
        for line in text.lines() {
            whole += &escaped(line);
            whole.push('\n');
        }
    }
    whole
}

/// Returns each object on a line, with its node as the first member, and the nodes whose answer is not JSON.
pub(super) fn json(answers: &[Answer]) -> (String, Vec<&str>) {
    let mut lines = String::new();
    let mut unread = Vec::new();
    for Answer { node, text } in answers {
        let mut values = Deserializer::from_str(text).into_iter::<Value>();
        let mut begin = 0;
        loop {
            let next = values.next();
            let own = text.get(begin..values.byte_offset()).unwrap_or_default().trim();
            begin = values.byte_offset();
            match next {
                None => break,
                Some(Ok(Value::Object(mut members))) => {
                    let had = members.remove("node").is_some();
                    // The members of a line keep their order.
                    let rest = if had || own.contains('\n') {
                        Value::Object(members).to_string()
                    } else {
                        own.to_owned()
                    };
                    let rest = rest.trim_start_matches('{');
                    let comma = if rest.trim() == "}" { "" } else { "," };
                    lines += &format!("{{\"node\":{}{comma}{rest}\n", Value::from(node.as_str()));
                }
                Some(Ok(_) | Err(_)) => {
                    unread.push(node.as_str());
                    break;
                }
            }
        }
    }
    (lines, unread)
}

#[cfg(test)]
mod tests {
    use super::{Answer, json, text};

    fn answers(all: &[(&str, &str)]) -> Vec<Answer> {
        all.iter().map(|(node, text)| Answer { node: (*node).to_owned(), text: (*text).to_owned() }).collect()
    }

    #[test]
    fn nodes_that_say_the_same_are_told_together() {
        let all = answers(&[("a", "no findings\n"), ("b", "X\n\u{1b}[2J\n"), ("c", "no findings\n")]);
        assert_eq!(text(&all), "== a, c (2 nodes)\nno findings\n\n== b\nX\n\\u{1b}[2J\n");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn each_line_has_its_node() {
        let all = answers(&[
            ("a", "{\"key\":\"z\",\"a\":1}\n{\"key\":\"y\"}\n"),
            ("b", ""),
            ("c", "{\n  \"version\": \"1\",\n  \"checks\": [1,\n 2]\n}\n"),
            ("d", "{\"b\":1,\"node\":\"other\",\"a\":2}\n{}\n"),
            ("e", "{\"a\":1}\nno findings\n"),
            ("f", "7\n"),
        ]);
        let (lines, unread) = json(&all);
        assert_eq!(
            lines,
            "{\"node\":\"a\",\"key\":\"z\",\"a\":1}\n{\"node\":\"a\",\"key\":\"y\"}\n\
             {\"node\":\"c\",\"checks\":[1,2],\"version\":\"1\"}\n\
             {\"node\":\"d\",\"a\":2,\"b\":1}\n{\"node\":\"d\"}\n{\"node\":\"e\",\"a\":1}\n"
        );
        assert_eq!(unread, ["e", "f"]);
    }
}
