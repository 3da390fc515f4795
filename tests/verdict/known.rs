//! Known problems: that they are found in their stories, and their pages.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use probe_user::known::{Catalogue, Problem, plain};
use tests::golden;

use crate::script;

#[test]
fn a_problem_is_found_in_its_story_and_not_in_its_twin() {
    let mut wrong = Vec::new();
    let mut stories = 0;
    for problem in Catalogue::built_in().problems() {
        for (story, expected) in [(&problem.story, true), (&problem.twin, false)] {
            let Some(story) = story else { continue };
            stories += 1;
            if is_found(problem, story) != expected {
                wrong.push(format!("{} in {story}: expected {expected}", problem.id));
            }
        }
    }
    assert!(stories >= 20 && wrong.is_empty(), "{stories} stories\n{}", wrong.join("\n"));
}

/// Whether a finding of the story may be the problem.
fn is_found(problem: &Problem, story: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/stories").join(format!("{story}.story"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (drive, ..) = script::play(&text).unwrap_or_else(|error| panic!("{story}: {error}"));
    drive.findings.iter().any(|finding| {
        let explanation = Catalogue::built_in().explain(finding, "node-1");
        explanation.known.iter().any(|it| it.id == problem.id)
    })
}

/// Each problem has a page, made from its file, and the list has all of them.
#[test]
fn the_pages_are_those_of_the_problems() {
    let folder = pages();
    let mut expected = BTreeSet::from(["README.md".to_owned()]);
    for problem in Catalogue::built_in().problems() {
        let name = format!("{}.md", problem.id);
        golden::expect(&folder.join(&name), &page(problem));
        expected.insert(name);
    }
    golden::expect(&folder.join("README.md"), &list());
    let entries = fs::read_dir(&folder).expect("the pages");
    let found = entries.map(|entry| entry.expect("an entry").file_name().display().to_string());
    assert_eq!(found.collect::<BTreeSet<_>>(), expected, "remove the pages of problems that are gone");
}

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/known")
}

fn list() -> String {
    let mut text = "# Known problems\n\nThis list and its pages are made from the files in `probe-engine/known/`. \
                    [Known problems as data](../known.md) has their\nformat. A release that is named here has the fix, \
                    and so have all later ones. A distribution may have it in an older one.\n\n\
                    | problem | findings | fixed in |\n|---|---|---|\n"
        .to_owned();
    for it in Catalogue::built_in().problems() {
        let kinds: Vec<String> = it.kinds().iter().map(|kind| format!("`{kind}`")).collect();
        let not_yet = if it.is_looked_for() { "" } else { " (not yet looked for)" };
        _ = writeln!(
            text,
            "| [{}]({}.md) | {}{not_yet} | {} |",
            it.title,
            it.id,
            kinds.join(", "),
            fixes(it)
        );
    }
    text
}

fn fixes(it: &Problem) -> String {
    let mut all = Vec::new();
    for fix in &it.fixes {
        let fixed: Vec<String> = fix.fixed.iter().map(ToString::to_string).collect();
        all.push(format!("{} {}", fix.name, fixed.join(", ")));
    }
    all.join("; ")
}

fn page(it: &Problem) -> String {
    let mut text = format!("# {}\n\n{}\n", it.title, it.cause);
    let kinds: Vec<String> = it.kinds().iter().map(|kind| format!("`{kind}`")).collect();
    _ = writeln!(
        text,
        "\n`sandprobe known {}` shows this page on a node. Findings: {}.",
        it.id,
        kinds.join(", ")
    );
    if !it.is_looked_for() {
        text += "\nsandprobe does not look for it yet: it reads what plugins say of a failed call, and what runtimes and kubelets say of a start or a stop that waits, or of their own end.\n";
    }
    let said: Vec<&str> = it.conditions.iter().filter_map(|condition| condition.says.as_deref()).collect();
    if !said.is_empty() {
        _ = writeln!(text, "\n## What is said\n\n```text\n{}\n```", said.join("\n"));
    }
    text += "\n## How to repair\n\nNames in braces stand for parts of the words, and for what is known of the node: `sandprobe explain` fills them in.\n\n```sh\n";
    for line in &it.repair {
        _ = writeln!(text, "{}", plain(line));
    }
    text += "```\n";
    for (number, fix) in it.fixes.iter().enumerate() {
        if number == 0 {
            text += "\n## Fixed in\n\n";
        }
        let fixed: Vec<String> = fix.fixed.iter().map(ToString::to_string).collect();
        _ = writeln!(
            text,
            "* {} {}: {} (<{}>). Nothing is known of releases before {}.",
            fix.name,
            fixed.join(", "),
            fix.what,
            fix.source,
            fix.from
        );
    }
    text += "\n## Reports\n\n";
    for link in &it.links {
        _ = writeln!(text, "* <{link}>");
    }
    text
}
