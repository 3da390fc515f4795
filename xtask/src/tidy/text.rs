//! Rules for each file, whatever its content.

use super::Source;

const MAX_LINES: usize = 600;
/// The agent's code. Measuring programs are exempt, because counting allocations needs an unsafe trait.
const AGENT: [&str; 2] = ["probe-engine/src/", "probe-user/"];
/// The files in which the agent may use `unsafe`: system calls, a signal handler, and functions of the C
/// library.
const UNSAFE: [&str; 5] = [
    "probe-user/src/source/",
    "probe-user/src/confine/refusal.rs",
    "probe-user/src/memcmp.rs",
    "probe-user/src/memcpy.rs",
    "probe-user/src/program_pages.rs",
];

/// Forbidden words: folders of one machine, hosts that belong in the configuration of apt and cargo, and
/// marks of unfinished work. Each is in two halves so that this file does not contain it.
const WORDS: [(&str, &str); 10] = [
    ("/wo", "rk/"),
    ("/fa", "rm/"),
    ("deb.", "debian.org"),
    ("security.", "debian.org"),
    ("snapshot.", "debian.org"),
    ("index.", "crates.io"),
    ("static.", "crates.io"),
    ("static.", "rust-lang.org"),
    ("TO", "DO"),
    ("FIX", "ME"),
];

pub(super) fn problems(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let mut found = Vec::new();
    for (line, at) in text.lines().zip(1..) {
        for (first, second) in WORDS {
            if has_word(line, &format!("{first}{second}")) {
                found.push(format!("{path}:{at}: {first}{second} has no place here"));
            }
        }
    }
    if path.ends_with(".rs") {
        found.extend(rust(path, text));
    }
    found
}

fn rust(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{path}: {lines} lines, of which {MAX_LINES} are enough: cut it up"));
    }
    if path.ends_with("/mod.rs") {
        found.push(format!("{path}: modules are foo.rs beside foo/, not foo/mod.rs"));
    }
    if !text.starts_with("//!") {
        found.push(format!("{path}: begins without saying what it is for (//!)"));
    }
    // In two halves, because this file is checked too.
    if text.contains(concat!("#[", "ignore")) {
        found.push(format!("{path}: an ignored test is no test"));
    }
    let may_be_unsafe = !AGENT.iter().any(|root| path.starts_with(root))
        || UNSAFE.iter().any(|place| path.starts_with(place));
    if !may_be_unsafe
        && text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains("unsafe "))
    {
        found.push(format!(
            "{path}: unsafe belongs in the sources only, the handler of what is refused, memcmp, memcpy and program_pages"
        ));
    }
    found
}

/// Whether the line has the word, and not as the end of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::{Source, problems};

    fn check(path: &str, text: &str) -> usize {
        problems(&Source { path: path.to_owned(), text: text.to_owned() }).len()
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(check("a.md", concat!("see /wo", "rk/x and deb.", "debian.org")), 2);
        assert_eq!(check("a.md", concat!("net/wo", "rk/x, paper/wo", "rk/")), 0);
    }

    #[test]
    fn rust_files_say_what_they_are_for() {
        assert_eq!(check("a/b.rs", "//! Why.\n"), 0);
        assert_eq!(check("a/b.rs", "fn f() {}\n"), 1);
        assert_eq!(check("a/mod.rs", "//! Why.\n"), 1);
        assert_eq!(check("a/b.rs", &format!("//! Why.\n{}", "\n".repeat(600))), 1);
        assert_eq!(check("probe-engine/src/engine.rs", "//! Why.\nunsafe { f() }\n"), 1);
    }
}
