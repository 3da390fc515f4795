//! Each word by which a program's tests are chosen or left out names tests.
//!
//! A word that names none, after a module got another name, would run nothing, or run beside VMs what holds times.

use super::{machine, native};
use crate::program::TESTS;
use crate::{tidy, workspace};

/// All tests of one program, by their paths: `pinned::detach_leaves_nothing_behind`.
fn tests(sources: &[tidy::Source], program: &str) -> Vec<String> {
    let folder = format!("tests/{program}/");
    let of_file = |source: &tidy::Source| {
        let module = source.path.strip_prefix(&folder)?.strip_suffix(".rs")?.replace('/', "::");
        let bodies = source.text.split("#[test]").skip(1);
        let names = bodies.filter_map(|body| body.split_once("fn ")?.1.split('(').next());
        Some(names.map(|name| format!("{module}::{name}")).collect::<Vec<_>>())
    };
    sources.iter().filter_map(of_file).flatten().collect()
}

#[test]
fn each_word_names_tests() {
    let sources = tidy::sources(workspace::root()).unwrap();
    let all = TESTS.map(|program| (program, tests(&sources, program)));
    let is_named = |word: &str, program: Option<&str>| {
        let mut tests = all.iter().filter(|(name, _)| program.is_none_or(|wanted| wanted == *name));
        tests.any(|(_, tests)| tests.iter().any(|test| test.contains(word)))
    };
    let lines: Vec<String> = machine::lines().into_iter().map(str::to_owned).chain(native::lines()).collect();
    assert!(lines.len() > TESTS.len(), "{lines:?}");
    for line in lines {
        let mut words = line.split_whitespace();
        let program = words.next().filter(|name| TESTS.contains(name));
        assert!(program.is_some(), "no such program: {line}");
        while let Some(word) = words.next() {
            // What one program leaves out may be another's alone: both are told the same.
            let (word, of) = if word == "--skip" { (words.next().unwrap(), None) } else { (word, program) };
            assert!(is_named(word, of), "{word} names no test: {line}");
        }
    }
}
