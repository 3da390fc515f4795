//! The messages that docs/troubleshooting.md quotes are messages of the program.

use std::{fs, path::Path};

use super::root;

/// Tables of what others say.
const OTHERS: [&str; 2] = ["| the event says |", "| the target's error |"];
/// Beginnings of quotes that several strings of the program make together.
const JOINED: [&str; 5] = [
    "this process may not load eBPF programs; ",
    "could not look everywhere: ",
    "kubectl is not in PATH",
    "cannot list the agents' pods: ",
    "no DaemonSet's pod in the namespace sandprobe has the labels ",
];
/// Fewer words in a row may be a command or a term.
const WORDS: usize = 4;

#[test]
fn the_page_of_troubles_quotes_the_program() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).expect("the page");
    let (_, page) = page.split_once("\n## sandprobe in trouble\n").expect("its heading");
    let own = page.replace("```", "");
    let own = own.split("\n\n").filter(|part| !OTHERS.iter().any(|it| part.trim_start().starts_with(it)));
    let quotes: Vec<&str> = own.flat_map(|part| part.split('`').skip(1).step_by(2)).collect();
    for it in JOINED {
        assert!(
            quotes.iter().any(|quote| quote.starts_with(it)),
            "nothing is quoted that begins with {it:?}"
        );
    }
    let mut program = String::new();
    add_sources(&root().join("probe-user/src"), &mut program);
    add_sources(&root().join("probe-engine/src"), &mut program);
    let mut count = 0;
    for quote in quotes.iter().filter(|quote| !JOINED.iter().any(|it| quote.starts_with(it))) {
        let words: Vec<&str> = quote.split_whitespace().collect();
        for fixed in words.split(|word| stands_for_another(word)).filter(|fixed| fixed.len() >= WORDS) {
            let text = fixed.join(" ");
            let text = text.trim_matches([':', ';', ',', '.', '"']);
            assert!(program.contains(text), "{quote:?} is not what the program says");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} messages were found on the page");
}

/// Whether the word stands for a name, a path or a number, or for words that are left out.
fn stands_for_another(word: &str) -> bool {
    let mut letters = word.trim_start_matches(['(', '"', '\'']).chars();
    let first = letters.next();
    let is_name = first.is_some_and(char::is_uppercase) && !letters.next().is_some_and(char::is_lowercase);
    is_name
        || first == Some('-')
        || word.contains("...")
        || word.contains(|c: char| c.is_ascii_digit() || "/{".contains(c))
}

/// Appends the sources below a folder, with each string in one line.
fn add_sources(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).expect("a source").replace("\\\"", "\"");
            for line in text.lines() {
                match line.trim_start().strip_suffix('\\') {
                    Some(start) => sources.push_str(start),
                    None => {
                        sources.push_str(line.trim_start());
                        sources.push('\n');
                    }
                }
            }
        }
    }
}
