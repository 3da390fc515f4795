//! Checks the inner walls of the engine's world: tables, lookups and reactions.
//!
//! `measure` finds import cycles, so a reaction cannot use one that stands before it in the order of
//! `react.rs`. This finds what imports do not show: methods of `World` can be called without an import, and a
//! module can always use its parent.

use super::{
    Source,
    arrow::{code, named},
};

const WORLD: &str = "probe-engine/src/engine/world";
/// The files that may have methods of `World`.
const WITH_METHODS: [&str; 2] = ["probe-engine/src/engine/world.rs", "probe-engine/src/engine/world/dump.rs"];
/// The modules that only list the modules in them. Those could call a function here without being seen.
const LISTS: [&str; 2] = ["lookup.rs", "react.rs"];
/// How reactions get a row to change, of the tables that give rows out, and which reactions may.
const OWNERS: [(&str, &[&str]); 6] = [
    ("world.attachments.rows", &["attachment", "cached", "gap", "lease", "ledger", "message", "reap"]),
    ("world.containers.rows", &["container", "identity"]),
    ("world.netns.rows", &["address", "claim", "netns", "watch"]),
    ("world.pods.rows", &["pod"]),
    ("world.sandboxes.get_mut", SANDBOX),
    ("world.sandboxes.recall_mut", SANDBOX),
];
const SANDBOX: &[&str] = &["claim", "identity", "run", "sandbox"];

pub(super) fn problems(sources: &[Source]) -> Vec<String> {
    let list = sources.iter().find(|source| source.path == format!("{WORLD}/react.rs"));
    let order = list.map(|list| order(&list.text)).unwrap_or_default();
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("probe-engine/src/engine")) {
        if source.path.ends_with("/tests.rs") || source.path.contains("/tests/") {
            continue;
        }
        for (line, number) in code(&source.text).zip(1..) {
            found.extend(problem(&source.path, line).map(|what| format!("{}:{number}: {what}", source.path)));
        }
        if let Some(reaction) = reaction(&source.path) {
            let text: String = code(&source.text).map(|line| format!("{line} ")).collect();
            let problems = backward(reaction, &text, &order).into_iter().chain(foreign_rows(reaction, &text));
            found.extend(problems.map(|what| format!("{}: {what}", source.path)));
        }
    }
    found
}

fn problem(path: &str, line: &str) -> Option<String> {
    let is_method = line.starts_with("impl") && (line.contains(" World {") || line.contains(" World<"));
    if is_method && !WITH_METHODS.contains(&path) {
        return Some("only world.rs has methods of World: write a function of a module".to_owned());
    }
    if path == "probe-engine/src/engine/world.rs" {
        let is_upward = ["apply::", "lookup::", "react::"].iter().any(|floor| line.contains(floor));
        return is_upward.then(|| "methods of World must not use what is built on them".to_owned());
    }
    let inner = path.strip_prefix(WORLD)?.strip_prefix('/')?;
    if LISTS.contains(&inner) && line.contains("fn ") {
        return Some("functions belong into the modules that this file lists".to_owned());
    }
    if inner.starts_with("table/") && has_word(line, "World") {
        return Some("a table must not know World".to_owned());
    }
    if inner.starts_with("lookup/") && line.contains("mut World") {
        return Some("a lookup must not change World".to_owned());
    }
    if inner.starts_with("react/") && line.contains("react::") {
        return Some("a reaction names others by `super`".to_owned());
    }
    None
}

/// The module of a reaction's file.
fn reaction(path: &str) -> Option<&str> {
    path.strip_prefix(WORLD)?.strip_prefix("/react/")?.strip_suffix(".rs")
}

/// The reactions as the list in `react.rs` has them, the first ones first.
fn order(list: &str) -> Vec<&str> {
    list.lines().filter_map(|line| line.strip_prefix("//! * `")?.split('`').next()).collect()
}

/// A reaction uses only those after it.
fn backward(reaction: &str, text: &str, order: &[&str]) -> Vec<String> {
    let Some(place) = order.iter().position(|name| *name == reaction) else {
        return vec![format!("{reaction} has no place in the list of react.rs")];
    };
    let used = text.match_indices("super::").flat_map(|(at, found)| named(&text[at + found.len()..]));
    // A list over several lines ends with a comma.
    used.filter(|name| !name.is_empty() && !order[place + 1..].contains(name))
        .map(|name| format!("{reaction} must not use {name}, which is not after it in the list of react.rs"))
        .collect()
}

/// A table's rows are changed by the table's methods, or in the reactions that may.
fn foreign_rows(reaction: &str, text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (rows, _) =
        OWNERS.iter().find(|(rows, owners)| text.contains(*rows) && !owners.contains(&reaction))?;
    Some(format!("{reaction} must not use {rows}: use a method of the table"))
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::{Source, problems};

    #[track_caller]
    fn count(path: &str, text: &str) -> usize {
        let source = |path: &str, text: &str| Source {
            path: format!("probe-engine/src/engine/{path}"),
            text: text.to_owned(),
        };
        let list =
            source("world/react.rs", "//! * `cni`: calls\n//! * `netns`: namespaces\n//! * `pod`: pods");
        problems(&[list, source(path, text)]).len()
    }

    #[test]
    fn the_world_has_inner_walls() {
        assert_eq!(count("world.rs", "impl World {\n    fn ask(&mut self) {}\n}"), 0);
        assert_eq!(count("world/react/netns.rs", "impl World {\n}"), 1);
        assert_eq!(count("view.rs", "impl<'a> From<&'a World> for View {\n}\nimpl World {\n}"), 1);
        assert_eq!(count("world.rs", "    fn ask(&mut self) { react::netns::dropped(self) }"), 1);
        assert_eq!(count("world/react.rs", "pub(crate) mod netns;"), 0);
        assert_eq!(count("world/react.rs", "pub(crate) fn any(world: &mut World) {}"), 1);
        assert_eq!(count("world/table/netns.rs", "// World\nfn f(world: &TheWorld) {}"), 0);
        assert_eq!(count("world/table/netns.rs", "fn f(world: &World) {}"), 1);
        assert_eq!(count("world/lookup/netns.rs", "fn f(world: &World) {}"), 0);
        assert_eq!(count("world/lookup/netns.rs", "fn f(world: &mut World) {}"), 1);
        assert_eq!(
            count(
                "world/react/cni.rs",
                "use super::{\n    netns,\n    pod::gone,\n};\nfn f() { netns::dropped() }"
            ),
            0
        );
        assert_eq!(count("world/react/netns.rs", "use super::{cni, pod};"), 1);
        assert_eq!(count("world/react/netns.rs", "fn f() { super::cni::begin() }"), 1);
        assert_eq!(count("world/react/netns.rs", "use crate::engine::world::react::cni;"), 1);
        assert_eq!(count("world/react/other.rs", ""), 1);
        assert_eq!(count("world/react/pod.rs", "world\n    .pods\n    .rows\n    .get_mut(&id)"), 0);
        assert_eq!(count("world/react/cni.rs", "world.pods.rows.get_mut(&id)"), 1);
    }
}
