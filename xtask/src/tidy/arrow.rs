//! Checks which modules of the agent use which: the arrow from sources to sinks.

use super::Source;

/// Each module of the agent with the modules that it may use. Every module may use itself.
const ARROW: &[(&str, &[&str])] = &[
    ("model", &[]),
    // Text of findings: names, durations, commands for a shell.
    ("words", &["model"]),
    ("engine", &["model", "words"]),
    ("recording", &["model", "engine"]),
    // What is known of problems, as a function of a finding.
    ("known", &["model", "words"]),
    ("confine", &[]),
    ("duration", &[]),
    ("size", &[]),
    ("bounded_read", &[]),
    ("grpc", &[]),
    ("retry_after", &[]),
    ("api_server", &["words", "bounded_read", "retry_after"]),
    ("source", &["model", "engine", "recording", "words", "grpc", "api_server"]),
    (
        "sink",
        &[
            "model",
            "engine",
            "recording",
            "known",
            "words",
            "bounded_read",
            "grpc",
            "retry_after",
            "api_server",
        ],
    ),
    ("golden", &[]),
    ("memcmp", &[]),
    ("memcpy", &[]),
    ("program_pages", &[]),
    ("replay", &["model", "engine", "recording"]),
    ("session", &["model", "engine", "recording", "sink"]),
    (
        "agent",
        &[
            "model",
            "engine",
            "recording",
            "source",
            "sink",
            "session",
            "confine",
            "program_pages",
            "api_server",
        ],
    ),
    ("config", &["model", "engine", "source", "duration", "size", "bounded_read"]),
    (
        "cli",
        &[
            "model",
            "engine",
            "recording",
            "known",
            "words",
            "golden",
            "replay",
            "source",
            "sink",
            "session",
            "config",
            "duration",
            "bounded_read",
            "size",
            "confine",
            "agent",
            "api_server",
        ],
    ),
];
/// The crates that model and engine may use besides the standard library: the kernel's records, and the
/// derives that define the form of recordings and state files.
const PURE: [&str; 6] = ["probe_common", "schemars", "serde", "serde_with", "strum", "thiserror"];
/// The modules that may use only these crates.
const PURE_MODULES: [&str; 2] = ["model", "engine"];
/// The crates that have these modules.
const AGENT: [&str; 2] = ["probe-engine/src/", "probe-user/src/"];
/// The roots of the crate, which may use everything.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

pub(super) fn problems(sources: &[Source]) -> Vec<String> {
    let manifest = sources.iter().find(|source| source.path == "probe-engine/Cargo.toml");
    let banned = manifest.map(|manifest| dependencies(&manifest.text)).unwrap_or_default();
    let mut found = Vec::new();
    for source in sources {
        let Some(module) = module(&source.path) else { continue };
        if ROOTS.iter().all(|root| !source.path.ends_with(root)) {
            match ARROW.iter().find(|(name, _)| *name == module) {
                Some((_, allowed)) => found.extend(edges(source, module, allowed)),
                None => found.push(format!("{}: {module} has no place in tidy's arrow", source.path)),
            }
        }
        if PURE_MODULES.contains(&module) {
            found.extend(foreign(source, &banned));
        }
    }
    found
}

/// Returns the first module on the path of a file of the agent. Unit tests in separate files may use any
/// module.
fn module(path: &str) -> Option<&str> {
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return None;
    }
    let path = AGENT.iter().find_map(|root| path.strip_prefix(root))?.strip_suffix(".rs")?;
    path.split('/').next()
}

fn edges(source: &Source, module: &str, allowed: &[&str]) -> Vec<String> {
    let text: String = code(&source.text).map(|line| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        for named in named(&text[at + "crate::".len()..]) {
            let is_module = ARROW.iter().any(|(name, _)| *name == named);
            if is_module && named != module && !allowed.contains(&named) {
                found.push(format!("{}:{line}: {module} must not know {named}", source.path));
            }
        }
    }
    found
}

/// Returns the first names after `crate::`: one, or several in braces.
pub(super) fn named(path: &str) -> Vec<&str> {
    let Some(list) = path.strip_prefix('{') else { return vec![first_name(path)] };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut begin = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(first_name(&list[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(first_name(&list[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    names
}

fn first_name(path: &str) -> &str {
    let path = path.trim_start();
    &path[..path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len())]
}

/// Finds uses of crates other than the standard library and [`PURE`].
fn foreign(source: &Source, banned: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (line, at) in code(&source.text).zip(1..) {
        for name in banned.iter().filter(|name| names(line, name)) {
            found.push(format!("{}:{at}: model and engine must not use {name}", source.path));
        }
    }
    found
}

/// Whether the line has `name::` as the first part of a path.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let is_first = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':');
        is_first && line[at + name.len()..].starts_with("::")
    })
}

/// Returns the dependencies of a manifest as crate names, without [`PURE`].
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.replace('-', "_")).filter(|name| !PURE.contains(&name.as_str())).collect()
}

/// Returns the lines before the unit tests, with comments removed.
pub(super) fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
    lines.map(|line| if line.trim_start().starts_with("//") { "" } else { line })
}

#[cfg(test)]
mod tests {
    use super::{Source, problems};

    fn check(path: &str, text: &str) -> Vec<String> {
        let manifest = "[package]\n\n[dependencies]\n# a note\nprobe-common = 1\nserde = 1\nserde-json = 1\n\n[lints]\na = 1\n";
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        problems(&[source("probe-engine/Cargo.toml", manifest), source(path, text)])
    }

    #[test]
    fn the_arrow_points_one_way() {
        assert!(
            check("probe-user/src/sink/jsonl.rs", "use crate::engine::Output;\nuse crate::sink::Sink;")
                .is_empty()
        );
        let wrong = check("probe-user/src/sink/jsonl.rs", "//! crate::agent\nuse crate::source::live;");
        assert_eq!(wrong, ["probe-user/src/sink/jsonl.rs:2: sink must not know source"]);
        let group =
            "use crate::{\n    engine::{self, id::{A, B}},\n    agent::Agent,\n};\ncrate::cli::run();";
        let wrong = check("probe-user/src/source.rs", group).join(", ");
        assert!(wrong.contains("rs:1: source must not know agent"), "{wrong}");
        assert!(wrong.contains("rs:5: source must not know cli"), "{wrong}");
        assert_eq!(check("probe-engine/src/engine.rs", "use crate::recording;").len(), 1);
        assert_eq!(check("probe-user/src/odd.rs", "").len(), 1);
        assert!(check("probe-user/src/main.rs", "use crate::cli;").is_empty());
    }

    #[test]
    fn model_and_engine_take_nothing_in() {
        for pure in ["probe-engine/src/engine/world.rs", "probe-engine/src/model/id.rs"] {
            assert_eq!(check(pure, "use serde_json::Value;").len(), 1);
        }
        assert_eq!(check("probe-engine/src/model/fact.rs", "use crate::engine::world;").len(), 1);
        assert!(
            check(
                "probe-engine/src/model/id.rs",
                "use probe_common::id;\nuse serde::Serialize;\nuse std::fmt; my_serde_json::x"
            )
            .is_empty()
        );
        assert!(check("probe-engine/src/recording.rs", "use serde_json::Value;").is_empty());
    }
}
