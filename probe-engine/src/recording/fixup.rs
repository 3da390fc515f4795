//! Old recordings: what a line of an older format must become to be one of the next.

use serde_json::Value;

use super::VERSION;

/// Brings one line, the header or any later one, from a version to the next.
pub(super) type Fixup = fn(&mut Value);

/// The fixup at index `n` leads from version `n + 1` to `n + 2`. Raising `VERSION` without adding to it does not
/// compile.
pub(super) const FIXUPS: [Fixup; VERSION as usize - 1] = [];

/// Brings `line` from version `from` up to the version after the table's last.
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

    /// Two changes of the kind that will come: a renamed member, then a new one.
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
