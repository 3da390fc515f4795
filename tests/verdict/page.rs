//! The pages of findings: each cause that one names is shown to bring the finding about.

use std::{fs, path::PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("the folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(ending) {
            files.push((name, fs::read_to_string(&path).expect("text")));
        }
    }
    files
}

/// The causes in a page, each as a text: the points of the list, or the paragraph where there is none.
fn causes(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once("\n## Causes\n").expect("it names causes");
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let points: Vec<String> = section.split("\n* ").skip(1).map(str::to_owned).collect();
    if points.is_empty() { vec![section.to_owned()] } else { points }
}

/// The test or story by which a cause says it is shown: `<!-- shown by NAME -->`.
fn shown_by(cause: &str) -> Option<&str> {
    Some(cause.split_once("<!-- shown by ")?.1.split_once(" -->")?.0)
}

/// `leaked_address` as the engine's type has it.
fn in_code(kind: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    kind.split('_').map(capital).collect()
}

/// Whether a test of the engine's speaks of such a finding: by its name, or by a constant of its file that has it. `None`:
/// there is no such test.
fn speaks(tests: &[(String, String)], name: &str, kind: &str) -> Option<bool> {
    let start = format!("\nfn {name}() {{\n");
    let (file, rest) = tests.iter().find_map(|(_, text)| Some((text, text.split_once(&start)?.1)))?;
    let body = rest.split("\n}\n").next().unwrap_or(rest);
    let constant = |line: &str| {
        let (name, value) = line.strip_prefix("const ")?.split_once(':')?;
        (value.contains(kind) && body.contains(name)).then_some(())
    };
    let by_constant = file.lines().any(|line| constant(line).is_some());
    Some(body.contains(kind) || body.contains(&in_code(kind)) || by_constant)
}

/// A cause that its rule excludes can be shown by no test.
#[test]
fn every_cause_on_a_page_of_findings_is_shown_by_a_test() {
    let stories = files("tests/data/stories", ".story");
    let tests = files("probe-engine/src/engine/tests", ".rs");
    let pages = files("docs/findings", ".md");
    assert!(pages.len() > 10 && stories.len() > 10 && tests.len() > 10, "nothing to look at");
    for (page, text) in &pages {
        let kind = page.trim_end_matches(".md");
        for cause in causes(text) {
            let name = shown_by(&cause).unwrap_or_else(|| panic!("{page}: nothing shows that {cause:?}"));
            let is_shown = match stories.iter().find(|(story, _)| story == name) {
                Some((_, text)) => {
                    text.lines().any(|line| line.starts_with("expect ") && line.contains(kind))
                }
                None => speaks(&tests, name, kind)
                    .unwrap_or_else(|| panic!("{page}: {name} is neither a story nor a test of the engine")),
            };
            assert!(is_shown, "{page}: {name} does not end with such a finding");
        }
    }
}
