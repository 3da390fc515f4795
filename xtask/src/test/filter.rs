//! Each word by which a program's tests are chosen or left out names tests.
//!
//! If a module is renamed, a word may name no test. Then it would run nothing, or no longer leave out of a
//! run beside VMs the tests that compare times.

use super::{machine, native};
use crate::program::TESTS;
use crate::{tidy, workspace};

/// Returns all tests of one program, by their paths: `pinned::detach_leaves_nothing_behind`.
fn tests(sources: &[tidy::Source], program: &str) -> Vec<String> {
    let folder = format!("tests/{program}/");
    let mut tests = Vec::new();
    for source in sources {
        let path = source.path.strip_prefix(&folder).and_then(|path| path.strip_suffix(".rs"));
        let Some(module) = path.map(|path| path.replace('/', "::")) else { continue };
        let bodies = source.text.split("#[test]").skip(1);
        let names = bodies.filter_map(|body| body.split_once("fn ")?.1.split('(').next());
        tests.extend(names.map(|name| format!("{module}::{name}")));
    }
    tests
}

#[test]
fn each_word_names_tests() {
    let sources = tidy::sources(workspace::root()).unwrap();
    let all = TESTS.map(|program| (program, tests(&sources, program)));
    let lines: Vec<String> = machine::lines().into_iter().map(str::to_owned).chain(native::lines()).collect();
    assert!(lines.len() > TESTS.len(), "{lines:?}");
    for line in lines {
        let mut words = line.split_whitespace();
        let program = words.next().filter(|name| TESTS.contains(name));
        assert!(program.is_some(), "no such program: {line}");
        while let Some(word) = words.next() {
            // A word to leave out may name tests of the other program: both get the same words.
            let (word, of) = if word == "--skip" { (words.next().unwrap(), None) } else { (word, program) };
            let mut tests = all.iter().filter(|(name, _)| of.is_none_or(|wanted| wanted == *name));
            let is_named = tests.any(|(_, tests)| tests.iter().any(|test| test.contains(word)));
            assert!(is_named, "{word} names no test: {line}");
        }
    }
}
