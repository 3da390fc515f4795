//! The documentation pages of the findings. A test must show each cause that a page names.

use std::{fs, path::PathBuf};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the names and texts of the files with this ending in a folder and in those in it.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("the folder") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        // Copies of nodes contain links to folders of this machine.
        if entry.file_type().expect("its kind").is_dir() {
            files.extend(self::files(path.to_str().expect("a name of words"), ending));
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(ending) {
            files.push((name, fs::read_to_string(&path).expect("text")));
        }
    }
    files
}

/// Returns the texts of the causes on a page: the list's items, or the paragraph if there is no list.
fn causes(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once("\n## Causes\n").expect("the page has causes");
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let points: Vec<String> = section.split("\n* ").skip(1).map(str::to_owned).collect();
    if points.is_empty() { vec![section.to_owned()] } else { points }
}

/// Returns the test or story that shows a cause, from `<!-- shown by NAME -->`.
fn shown_by(cause: &str) -> Option<&str> {
    Some(cause.split_once("<!-- shown by ")?.1.split_once(" -->")?.0)
}

/// Returns the name of the kind in the code: `LeakedAddress` for `leaked_address`.
fn in_code(kind: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    kind.split('_').map(capital).collect()
}

/// Whether the engine's test of this name names such a finding, directly or by a constant of its file.
/// `None`: there is no such test.
fn names_kind(tests: &[(String, String)], name: &str, kind: &str) -> Option<bool> {
    let start = format!("fn {name}() {{\n");
    let (file, rest) = tests.iter().find_map(|(_, text)| Some((text, text.split_once(&start)?.1)))?;
    // Tests beside a rule are in a module, and indented.
    let is_indented = file.contains(&format!("    {start}"));
    let end = if is_indented { "\n    }\n" } else { "\n}\n" };
    let body = rest.split(end).next().unwrap_or(rest);
    let constant = |line: &str| {
        let (name, value) = line.strip_prefix("const ")?.split_once(':')?;
        (value.contains(kind) && body.contains(name)).then_some(())
    };
    let by_constant = file.lines().any(|line| constant(line).is_some());
    Some(body.contains(kind) || body.contains(&in_code(kind)) || by_constant)
}

/// No test can show a cause that the finding's rule excludes, so such a cause fails here.
#[test]
fn every_cause_on_a_page_of_findings_is_shown_by_a_test() {
    let stories = files("tests/data/stories", ".story");
    let places = ["probe-engine/src/engine/tests", "probe-engine/src/engine/detect"];
    let tests: Vec<_> = places.iter().flat_map(|place| files(place, ".rs")).collect();
    let pages = files("docs/findings", ".md");
    assert!(pages.len() > 10 && stories.len() > 10 && tests.len() > 10, "there are no files");
    for (page, text) in &pages {
        let kind = page.trim_end_matches(".md");
        for cause in causes(text) {
            let name =
                shown_by(&cause).unwrap_or_else(|| panic!("{page}: no test shows the cause {cause:?}"));
            let is_shown = match stories.iter().find(|(story, _)| story == name) {
                Some((_, text)) => {
                    text.lines().any(|line| line.starts_with("expect ") && line.contains(kind))
                }
                None => names_kind(&tests, name, kind)
                    .unwrap_or_else(|| panic!("{page}: {name} is neither a story nor a test of the engine")),
            };
            assert!(is_shown, "{page}: {name} does not have such a finding");
        }
    }
}

/// A test with a real runtime provokes each kind, as docs/findings.md says.
#[test]
fn each_kind_is_provoked_with_a_real_runtime() {
    let tests: Vec<_> = ["tests/pod", "tests/kernel"].iter().flat_map(|place| files(place, ".rs")).collect();
    let pages = files("docs/findings", ".md");
    let kinds = pages.iter().map(|(name, _)| name.trim_end_matches(".md"));
    let unseen = kinds.filter(|kind| !tests.iter().any(|(_, text)| text.contains(&format!("\"{kind}"))));
    assert_eq!(unseen.collect::<Vec<_>>(), [""; 0]);
}
