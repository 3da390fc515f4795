//! Checks each known problem: what it claims, its links, its repair, and that no two claim the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use probe_engine::{
    known::{Catalogue, Condition, Problem, Speaker},
    model::{
        change::{Finding, Process},
        fact::{CniCommand, NodeFolders, PodName, ProgramFound, Said},
        finding::{
            CniFailing, Detail, Duplicate, DuplicateSandbox, FindingKind, Key, Kind, Message, OrphanSandbox,
            SaidOften, Severity, Stage, StartStep, StopStep, StuckStart, StuckStop,
        },
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};
use schemars::schema_for;
use serde_json::Value;

/// The longest message that is kept of a log.
const MAX_SAYS: usize = 512;
/// Beginnings of links, before the number of a report or the name of a section.
const LINKS: [&str; 4] = [
    "https://github.com/",
    "https://www.cni.dev/docs/",
    "https://www.docker.com/",
    "https://kubernetes.io/docs/",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn problems() -> impl Iterator<Item = &'static Problem> {
    Catalogue::built_in().problems()
}

fn conditions() -> impl Iterator<Item = (&'static Problem, &'static Condition)> {
    problems().flat_map(|problem| problem.conditions.iter().map(move |condition| (problem, condition)))
}

/// Returns the problem that a message is, as the one with the most words; an error if two have as many.
fn claimed(said: &str) -> Result<Option<&'static str>> {
    let mut claims: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for (problem, condition) in conditions() {
        if let Some(words) = condition.words.as_ref().filter(|words| words.find(said).is_some()) {
            claims.entry(words.weight()).or_default().insert(&problem.id);
        }
    }
    let Some((_, best)) = claims.pop_last() else { return Ok(None) };
    ensure!(best.len() == 1, "{said:?} is claimed by {best:?}");
    Ok(best.first().copied())
}

#[test]
fn each_file_is_a_problem() -> Result<()> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(root().join("known"))? {
        let path = entry?.path();
        let id = path.file_stem().context("no name")?.display().to_string();
        Problem::parse(&id, &fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
        ensure!(
            id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
            "{id}: an id has small letters, digits and hyphens"
        );
        files.insert(id);
    }
    let built_in: BTreeSet<String> = problems().map(|it| it.id.clone()).collect();
    ensure!(files == built_in && files.len() >= 60, "{} files, {} built in", files.len(), built_in.len());
    Ok(())
}

#[test]
fn each_says_in_one_sentence_what_it_is() -> Result<()> {
    for it in problems() {
        ensure!(!it.title.ends_with('.') && it.title.len() <= 90, "{}: {}", it.id, it.title);
        ensure!(it.cause.ends_with('.') && !it.cause.contains(". "), "{}: {}", it.id, it.cause);
        ensure!(it.repair.iter().any(|line| !line.starts_with('#')), "{}: no command", it.id);
        ensure!(!it.links.is_empty(), "{}: no link", it.id);
        for link in &it.links {
            ensure!(LINKS.iter().any(|form| link.starts_with(form)), "{}: {link}", it.id);
            let is_report = link.contains("/issues/") || link.contains("/pull/");
            let number = link.rsplit('/').next().unwrap_or_default();
            ensure!(!is_report || number.bytes().all(|byte| byte.is_ascii_digit()), "{}: {link}", it.id);
        }
    }
    Ok(())
}

#[test]
fn each_pattern_matches_its_message_alone() -> Result<()> {
    let ids: BTreeSet<&str> = problems().map(|it| &*it.id).collect();
    for (problem, condition) in conditions() {
        let Some(words) = &condition.words else { continue };
        let said = condition.says.as_deref().with_context(|| format!("{}: no message", problem.id))?;
        ensure!(condition.source.is_some(), "{}: who quoted the message?", problem.id);
        ensure!(said.len() <= MAX_SAYS, "{}: the message is longer than those that are kept", problem.id);
        ensure!(words.find(said).is_some(), "{}: {words} does not match {said}", problem.id);
        ensure!(
            claimed(said)? == Some(&problem.id),
            "{}: {said} is claimed by {:?}",
            problem.id,
            claimed(said)?
        );
        let unlike = condition.unlike.as_deref().with_context(|| format!("{}: no unlike", problem.id))?;
        ensure!(unlike != problem.id && ids.contains(unlike), "{}: unlike {unlike}", problem.id);
    }
    Ok(())
}

#[test]
fn a_problem_without_words_has_a_story_and_a_twin() -> Result<()> {
    // The rules have tests of their own, and no story.
    let without = [
        "aws-cni-blind-del",
        "containerd-event-dropped",
        "containerd-says-ended",
        "containerd-says-running",
        "containerd-shim-after-crash",
        "containerd-shim-after-two-cleanups",
        "netns-pinned-by-interface",
    ];
    let stories = root().join("../tests/data/stories");
    for it in problems() {
        for story in [&it.story, &it.twin].into_iter().flatten() {
            ensure!(stories.join(format!("{story}.story")).exists(), "{}: no story {story}", it.id);
        }
        let has_words = it.patterns().next().is_some();
        let has_stories = it.story.is_some() && it.twin.is_some();
        ensure!(has_words || has_stories != without.contains(&&*it.id), "{}: stories", it.id);
    }
    Ok(())
}

fn finding(kind: Kind) -> Finding {
    Finding {
        key: Key::parse("cni_failing/bridge").expect("a key"),
        kind,
        severity: Severity::Warning,
        stage: Stage::Confirmed,
        since: Timestamp(1),
        opened_at: Timestamp(1),
        confirmed_at: Some(Timestamp(2)),
        closed_at: None,
        pod: Some(PodName {
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            uid: None,
        }),
        sandboxes: vec![ContainerId::parse(&"a".repeat(64)).expect("an id")],
        gapped: false,
        evidence: Vec::new(),
        programs: Vec::new(),
        runtimes: vec!["/run/a.sock".to_owned(), "/run/b.sock".to_owned()],
        folders: NodeFolders::default(),
        worst: None,
    }
}

/// Returns failing calls of a plugin that said this.
fn failing(command: CniCommand, said: &[&str]) -> Finding {
    let mut it = CniFailing {
        plugin: "bridge".to_owned(),
        command,
        attempts: 3,
        pods: 1,
        wasted: Duration::from_secs(1),
        code: Some(1),
        message: said
            .first()
            .map(|text| Message { text: Some((*text).to_owned()), source: "journal".to_owned() }),
        messages: Vec::new(),
    };
    if said.len() > 1 {
        it.messages = said.iter().map(|text| SaidOften { text: (*text).to_owned(), pods: 1 }).collect();
    }
    finding(it.into())
}

/// Returns a start or a stop that waits, and about which this was said.
fn waiting(kind: &str, step: Option<&str>, by: Speaker, text: &str) -> Option<Finding> {
    let said = vec![Said {
        by,
        text: text.to_owned(),
        at: "2026-11-25T09:29:07Z".to_owned(),
        source: "journal".to_owned(),
    }];
    Some(finding(match kind {
        "stuck_start" => StuckStart {
            step: match step {
                Some("network") => StartStep::Network,
                Some("container") => StartStep::Container,
                Some(_) | None => StartStep::Sandbox,
            },
            sandboxes: 0,
            cause: None,
            plugin: None,
            network: None,
            folders: Vec::new(),
            config_file: None,
            addresses: Vec::new(),
            said,
            unsaid: None,
        }
        .into(),
        "stuck_stop" => StuckStop {
            step: match step {
                Some("del") => StopStep::Del,
                Some("unmount") => StopStep::Unmount,
                Some(_) | None => StopStep::Containers,
            },
            process: None,
            attempts: 1,
            plugin: None,
            exit_code: None,
            cache_file: None,
            mount: None,
            said,
            unsaid: None,
        }
        .into(),
        _ => return None,
    }))
}

/// Each message is its problem's story, and the message of the problem that it is unlike is the twin.
#[test]
fn what_is_said_names_the_problem() -> Result<()> {
    let mut played = BTreeMap::from([("plugin", 0), ("runtime", 0), ("kubelet", 0)]);
    for (problem, condition) in conditions() {
        let (Some(said), Some(by)) = (&condition.says, condition.from) else { continue };
        let unlike = condition.unlike.as_deref().and_then(|id| Catalogue::built_in().get(id));
        for kind in &condition.kinds {
            // Among findings of another kind the message may be this problem's.
            let others = unlike.iter().flat_map(|it| &it.conditions).filter(|it| it.kinds.contains(kind));
            let others = others.filter_map(|it| Some((it.says.as_deref()?, it.from?, false)));
            for (text, by, expected) in [(&**said, by, true)].into_iter().chain(others) {
                let is_del = condition.members.get("command").is_some_and(|it| *it == ["DEL"]);
                let command = if is_del { CniCommand::Del } else { CniCommand::Add };
                let step = condition.members.get("step").and_then(|steps| steps.first()).map(String::as_str);
                let finding = match by {
                    Speaker::Plugin => Some(failing(command, &[text])),
                    Speaker::Runtime | Speaker::Kubelet => waiting(kind, step, by, text),
                };
                let Some(finding) = finding else { continue };
                let found = Catalogue::built_in().explain(&finding, "node-1");
                let is_named = found.known.first().is_some_and(|it| it.id == problem.id);
                ensure!(is_named == expected, "{}: {text}: {:?}", problem.id, found.known);
                ensure!((found.cause == problem.cause) == expected, "{}: {}", problem.id, found.cause);
                *played.entry(by.into()).or_default() += 1;
            }
        }
    }
    ensure!(
        played.get("plugin") >= Some(&60) && played.get("kubelet") >= Some(&40),
        "messages of each: {played:?}"
    );
    Ok(())
}

#[test]
fn a_repair_has_the_parts_of_the_words_and_asks_each_runtime() {
    let said = r#"failed to set bridge addr: "cni'0" already has an IP address different from 10.25.31.1/24"#;
    let other = r#"failed to set bridge addr: "cni0" already has an IP address different from 10.25.31.1/24"#;
    // A name with a quote is no name of an interface.
    let finding = failing(CniCommand::Add, &[said, other]);
    let found = Catalogue::built_in().explain(&finding, "node-1");
    assert_eq!(found.known[0].id, "bridge-other-address");
    assert_eq!(found.repair[1], "ip -br addr show dev 'cni0'");

    let problem = r##"
id = "test"
title = "A test"
cause = "A test."
links = ["https://github.com/a/b/issues/1"]
repair = ["# Each:", "{crictl} inspectp {sandbox}", "# Left out:", "cat {kubelet_dir}", "# Kept:", "echo {{}} {pod} {rest}"]
[[match]]
finding = ["cni_failing"]
from = "plugin"
words = "the plugin says {rest:text}"
"##;
    let mut catalogue = Catalogue::default();
    assert!(catalogue.add(Problem::parse("test", problem).expect("a problem")).is_none());
    let finding = failing(CniCommand::Add, &["the plugin says it's $(reboot)"]);
    let id = "a".repeat(64);
    let lines = catalogue.explain(&finding, "node-1").repair;
    assert_eq!(
        lines[..5],
        [
            "# Each:".to_owned(),
            format!("crictl --runtime-endpoint 'unix:///run/a.sock' inspectp '{id}'"),
            format!("crictl --runtime-endpoint 'unix:///run/b.sock' inspectp '{id}'"),
            "# Kept:".to_owned(),
            r"echo {} 'web-0' 'it'\''s $(reboot)'".to_owned(),
        ]
    );
    // A command would take it for an option.
    for option in ["--all", "."] {
        let finding = failing(CniCommand::Add, &[&*format!("the plugin says {option}")]);
        assert_eq!(
            catalogue.explain(&finding, "node-1").repair[3..].iter().filter(|it| it.contains("echo")).count(),
            0
        );
    }
    let finding = failing(CniCommand::Add, &["the plugin says \u{1b}[2J"]);
    assert!(catalogue.explain(&finding, "node-1").repair[4].starts_with("# its path has characters"));
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let good = r#"
id = "test"
title = "A test"
cause = "A test."
links = ["https://github.com/a/b/issues/1"]
repair = ["echo {rest}"]
[[match]]
finding = ["cni_failing"]
from = "plugin"
words = "the plugin says {rest}"
"#;
    assert!(Problem::parse("test", good).is_ok());
    for (from, to, error) in [
        ("id = \"test\"", "id = \"other\"", "its id is other, but the file has another name"),
        ("https://github.com", "http://github.com", "does not begin with https://"),
        ("finding = [\"cni_failing\"]", "finding = []", "needs finding"),
        ("cni_failing", "cni_faling", "cni_faling is no kind of finding"),
        ("A test.", r"A test\u001b.", "not printable"),
        ("\"echo {rest}\"", "'echo \"{rest}\"'", "{rest} stands between quotes"),
        ("echo {rest}", "# {crictl} rmp", "in a comment: write crictl"),
        ("from = \"plugin\"\n", "", "needs from"),
        ("from = \"plugin\"", "from = \"nobody\"", "nobody"),
        ("echo {rest}", "echo {other}", "{other} in its repair is neither"),
        ("echo {rest}", "echo {rest", "a brace without a partner: echo {rest"),
        ("{rest}\"\n", "{rest}{more}\"\n", "stand side by side"),
        ("title", "tilte", "line 3: unknown field `tilte`"),
        ("echo {rest}", "echo $'{rest}'", "is not a form of every shell"),
    ] {
        let text = good.replacen(from, to, 1);
        let said = Problem::parse("test", &text).expect_err(to).to_string();
        assert!(said.contains(error), "{to}: {said}");
    }
}

/// A problem that is known by members alone is not named beside a version that has the fix.
#[test]
fn a_version_with_the_fix_does_not_have_the_problem() {
    let of = |version: Option<&str>| {
        let kind = DuplicateSandbox { form: Duplicate::AfterCompletion, count: 1 };
        let program = |path: &str, version| ProgramFound { path: path.to_owned(), version };
        let programs = vec![
            program("/usr/bin/kubelet", version.map(str::to_owned)),
            program("/usr/bin/containerd", Some("1.6.8".to_owned())),
        ];
        let finding = Finding { programs, ..finding(kind.into()) };
        let found = Catalogue::built_in().explain(&finding, "node-1");
        let fixed = found.fixed_in.iter().map(|it| format!("{} {} {}", it.path, it.version, it.fixed));
        (found.known.len(), fixed.collect::<Vec<_>>())
    };
    assert_eq!(of(Some("v1.18.20")), (0, Vec::new()), "it was not looked up");
    assert_eq!(of(Some("v1.19.3")), (1, vec!["/usr/bin/kubelet v1.19.3 1.19.4".to_owned()]));
    assert_eq!(of(Some("v1.31.2")), (0, Vec::new()));
    assert_eq!(of(None), (1, Vec::new()));
}

/// A runtime's problem is not named beside another runtime.
#[test]
fn a_problem_of_a_runtime_is_that_runtime_s() {
    let process = Process { key: TaskKey::new(9, 9), parent: TaskKey::new(1, 1), comm: "pause".to_owned() };
    let of = |programs: &[(&str, &str)]| {
        let programs = programs.iter().map(|(path, version)| ProgramFound {
            path: (*path).to_owned(),
            version: Some((*version).to_owned()),
        });
        let kind = OrphanSandbox { process: process.clone() };
        let finding = Finding { programs: programs.collect(), ..finding(kind.into()) };
        let found = Catalogue::built_in().explain(&finding, "node-1");
        found.known.iter().map(|it| it.id.to_owned()).collect::<Vec<_>>()
    };
    let crash = "containerd-shim-after-crash";
    assert_eq!(of(&[("/usr/bin/crio", "1.30.0"), ("/usr/bin/kubelet", "1.30.0")]), [""; 0]);
    assert_eq!(of(&[("/usr/bin/containerd", "1.6.20")]), [crash]);
    assert_eq!(of(&[("/usr/bin/containerd", "1.7.2")]), [""; 0]);
    assert_eq!(of(&[("/usr/bin/containerd", "2.1.0")]), ["containerd-shim-after-two-cleanups"]);
    assert_eq!(of(&[]), [crash, "containerd-shim-after-two-cleanups"]);
}

#[test]
fn kinds_and_members_exist() -> Result<()> {
    let schema = serde_json::to_value(schema_for!(Detail<'static>))?;
    let definitions = schema["$defs"].as_object().context("no definitions")?;
    for (problem, condition) in conditions() {
        ensure!(!condition.kinds.is_empty(), "{}: no kind", problem.id);
        for kind in &condition.kinds {
            let found: FindingKind = serde_json::from_value(Value::from(&**kind))
                .with_context(|| format!("{}: {kind}", problem.id))?;
            let members = &definitions[found.word()]["properties"];
            let named = condition.members.keys().chain(&condition.has).chain(&condition.lacks);
            for path in named {
                let first = path.split('.').next().unwrap_or_default();
                ensure!(members.get(first).is_some(), "{}: {kind} has no member {first}", problem.id);
            }
        }
    }
    Ok(())
}

/// Each value is one shell word, so a text in its place shows whether a shell accepts the line.
#[test]
fn a_shell_accepts_each_repair() -> Result<()> {
    for it in problems() {
        for line in &it.repair {
            let text = line.replace("{{", "\u{1}").replace("}}", "\u{2}");
            let mut filled = String::new();
            let mut rest = &*text;
            while let Some((before, inner)) = rest.split_once('{') {
                let (_, after) = inner.split_once('}').context("a brace without a partner")?;
                filled = filled + before + "'x'";
                rest = after;
            }
            filled = (filled + rest).replace('\u{1}', "{").replace('\u{2}', "}");
            let shell = Command::new("sh").args(["-n", "-c", &filled]).output()?;
            ensure!(
                shell.status.success(),
                "{}: {filled}: {}",
                it.id,
                String::from_utf8_lossy(&shell.stderr)
            );
        }
    }
    Ok(())
}
