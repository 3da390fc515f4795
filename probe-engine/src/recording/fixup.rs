//! Old recordings: converts a line of an older format to the next one.

use serde_json::Value;

use super::VERSION;

/// Converts one line, the header or any later one, from a version to the next.
pub(super) type Fixup = fn(&mut Value);

/// The fixup at index `n` converts from version `n + 1` to `n + 2`. Raising `VERSION` without adding a fixup
/// does not compile.
pub(super) const FIXUPS: [Fixup; VERSION as usize - 1] = [];

/// Converts `line` from version `from` to the newest version of the table.
pub(super) fn upgrade(line: &mut Value, from: u32, table: &[Fixup]) {
    let done = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
    for fixup in table.iter().skip(done) {
        fixup(line);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Fixup, upgrade};

    /// Two typical changes of a format: a renamed member, then a new one.
    const TABLE: [Fixup; 2] = [
        |line| {
            if let Some(object) = line.as_object_mut()
                && let Some(value) = object.remove("tick")
            {
                object.insert("advance".to_owned(), value);
            }
        },
        |line| line["new"] = Value::from(true),
    ];

    #[test]
    fn a_line_goes_through_every_version_after_its_own() {
        let upgraded = |from| {
            let mut line = json!({ "tick": "1" });
            upgrade(&mut line, from, &TABLE);
            line
        };
        assert_eq!(upgraded(1), json!({ "advance": "1", "new": true }));
        assert_eq!(upgraded(2), json!({ "tick": "1", "new": true }));
        assert_eq!(upgraded(3), json!({ "tick": "1" }));
    }
}
