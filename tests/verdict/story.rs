//! Every file in `data/stories` is a story with its expected findings. It must have exactly these.

use std::{fs, path::Path};

use crate::script;

#[test]
fn every_story_has_the_expected_findings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/stories");
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("the stories").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "story"));
    files.sort_unstable();
    assert!(!files.is_empty(), "no story in {}", folder.display());
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a story");
        if let Err(difference) = script::run(&text) {
            wrong.push(format!("{}:\n{difference}", file.file_name().unwrap_or_default().display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} stories have other findings:\n{}",
        wrong.len(),
        files.len(),
        wrong.join("\n")
    );
}
