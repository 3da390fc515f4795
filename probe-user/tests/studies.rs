//! The table of docs/studies.md: each command that it names runs and prints what the row says, and each
//! metric, finding, alert and page exists. Needs no root.

#![cfg(feature = "live")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// How many questions each study has.
const QUESTIONS: [usize; 4] = [20, 14, 6, 12];

struct Row<'a> {
    id: &'a str,
    /// `whole`, `part` or `no`.
    state: &'a str,
    answers: &'a str,
    missing: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer<'a> {
    /// A command, with words that it prints.
    Command(&'a str, Vec<&'a str>),
    Metric(&'a str),
    Alert(&'a str),
    /// A file, relative to the documentation.
    Page(&'a str),
}

/// What each command prints, or why it failed.
type Outputs<'a> = BTreeMap<&'a str, Result<String, String>>;

#[test]
fn each_question_of_the_studies_has_the_answer_that_the_page_names() {
    let page = read("docs/studies.md");
    let rows = rows(&page);
    let ids: Vec<&str> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids, questions(), "each question once, in their order");
    for (study, expected) in counts(&rows) {
        assert!(page.contains(&expected), "study {study}: the page does not count {expected:?}");
    }
    let mut outputs = Outputs::new();
    let wrong: Vec<String> = rows.iter().flat_map(|row| problems(row, &mut outputs)).collect();
    assert!(wrong.is_empty() && outputs.len() > 20, "{} commands\n{}", outputs.len(), wrong.join("\n"));
}

#[test]
fn a_row_that_is_wrong_is_refused() {
    let known = "`sandprobe known services-not-read`";
    let wrong = [
        (
            "whole",
            format!("{known} prints `The kubelet has read`"),
            "",
            "does not print \"The kubelet has read\"",
        ),
        ("whole", known.to_owned(), "", "names no words"),
        ("whole", "`sandprobe known no-such-problem` prints `it`".to_owned(), "", "failed: exit status: 2"),
        ("whole", "`sandprobe_nothing_total`".to_owned(), "", "no metric sandprobe_nothing_total"),
        ("whole", "`SandprobeNothing`".to_owned(), "", "no alert SandprobeNothing"),
        ("whole", "[`nothing`](findings/nothing.md)".to_owned(), "", "no page findings/nothing.md"),
        ("whole", "`it`".to_owned(), "", "no command prints \"it\""),
        ("whole", "some words".to_owned(), "", "whole, and no answer"),
        ("part", "`SandprobeCniSlow`".to_owned(), "", "part, and nothing is missing"),
        ("whole", "`SandprobeCniSlow`".to_owned(), "much", "whole, and something is missing"),
        ("no", "`SandprobeCniSlow`".to_owned(), "all", "no, and an answer"),
        ("perhaps", "`SandprobeCniSlow`".to_owned(), "", "perhaps is no state"),
    ];
    for (state, answers, missing, why) in wrong {
        let row = format!("| 1.1 | how much | {state} | {answers} | {missing} |");
        let rows = rows(&row);
        let [row] = rows.as_slice() else { panic!("{row} is no row") };
        let found = problems(row, &mut Outputs::new());
        assert!(found.len() == 1 && found[0].contains(why), "expected {why:?}: {found:?}");
    }
    let row = format!("| 1.1 | how much | part | {known} prints `Why`; `SandprobeCniSlow` | much |");
    assert_eq!(problems(&rows(&row)[0], &mut Outputs::new()), Vec::<String>::new());
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", id, _question, state, answers, missing, ""] = *cells
            && id.contains('.')
        {
            rows.push(Row { id, state, answers, missing });
        }
    }
    rows
}

fn questions() -> Vec<String> {
    let studies = (1..).zip(QUESTIONS);
    studies.flat_map(|(study, count)| (1..=count).map(move |n| format!("{study}.{n}"))).collect()
}

/// Returns the row that the page has for each study: how many questions it has, and how many of each state.
fn counts(rows: &[Row<'_>]) -> Vec<(usize, String)> {
    let mut counts = Vec::new();
    for (study, questions) in (1..).zip(QUESTIONS) {
        let own = format!("{study}.");
        let states = ["whole", "part", "no"].map(|state| {
            rows.iter().filter(|row| row.id.starts_with(&own) && row.state == state).count().to_string()
        });
        counts.push((study, format!("| {study} | {questions} | {} |", states.join(" | "))));
    }
    counts
}

/// Returns what is wrong with a row.
fn problems<'a>(row: &Row<'a>, outputs: &mut Outputs<'a>) -> Vec<String> {
    let answers = match answers(row.answers) {
        Ok(answers) => answers,
        Err(why) => return vec![format!("{}: {why}", row.id)],
    };
    let mut wrong = Vec::new();
    match (row.state, answers.is_empty(), row.missing.is_empty()) {
        ("whole", false, true) | ("part", false, false) | ("no", true, false) => {}
        ("whole" | "part", true, _) => wrong.push(format!("{}, and no answer", row.state)),
        ("whole", ..) => wrong.push("whole, and something is missing".to_owned()),
        ("part" | "no", _, true) => wrong.push(format!("{}, and nothing is missing", row.state)),
        ("no", ..) => wrong.push("no, and an answer".to_owned()),
        (state, ..) => wrong.push(format!("{state} is no state")),
    }
    for answer in answers {
        match answer {
            Answer::Command(line, words) => wrong.extend(unprinted(line, &words, outputs)),
            Answer::Metric(name) if !read("docs/metrics.md").contains(&format!("| `{name}` |")) => {
                wrong.push(format!("no metric {name}"));
            }
            Answer::Alert(name)
                if !read("deploy/prometheus/rules.yaml").contains(&format!("alert: {name}\n")) =>
            {
                wrong.push(format!("no alert {name}"));
            }
            Answer::Page(path) if !root().join("docs").join(path).is_file() => {
                wrong.push(format!("no page {path}"));
            }
            Answer::Metric(_) | Answer::Alert(_) | Answer::Page(_) => {}
        }
    }
    wrong.into_iter().map(|why| format!("{}: {why}", row.id)).collect()
}

/// Returns what a cell names. All that is code or a link in it is an answer, or is printed by the command
/// before it.
fn answers(cell: &str) -> Result<Vec<Answer<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = cell;
    while let Some(begin) = rest.find(['`', '[']) {
        let is_link = rest[begin..].starts_with('[');
        rest = &rest[begin + 1..];
        let end = if is_link { ")" } else { "`" };
        let (name, after) = rest.split_once(end).ok_or_else(|| format!("{rest:?} has no end"))?;
        rest = after;
        if is_link {
            let (_, path) = name.split_once("](").ok_or_else(|| format!("{name:?} is no link"))?;
            found.push(Answer::Page(path));
        } else if name.starts_with("sandprobe ") {
            found.push(Answer::Command(name, Vec::new()));
        } else if name.starts_with("sandprobe_") {
            found.push(Answer::Metric(name));
        } else if name.starts_with("Sandprobe") {
            found.push(Answer::Alert(name));
        } else if let Some(Answer::Command(_, words)) = found.last_mut() {
            words.push(name);
        } else {
            return Err(format!("no command prints {name:?}"));
        }
    }
    Ok(found)
}

/// Runs a command, once for all rows. Returns that it failed, or the words that it did not print.
fn unprinted<'a>(line: &'a str, words: &[&str], outputs: &mut Outputs<'a>) -> Vec<String> {
    if words.is_empty() {
        return vec![format!("{line:?} names no words")];
    }
    match outputs.entry(line).or_insert_with(|| run(line)) {
        Ok(printed) => {
            let missing = words.iter().filter(|it| !printed.contains(**it));
            missing.map(|it| format!("{line:?} does not print {it:?}:\n{printed}")).collect()
        }
        Err(why) => vec![why.clone()],
    }
}

/// Returns what a command prints, with one space between words.
fn run(line: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(line.split(' ').skip(1)).current_dir(root()).stdin(Stdio::null());
    let output = command.output().expect("the program was built");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{line:?} failed: {}: {said}", output.status));
    }
    let printed = String::from_utf8(output.stdout).expect("text");
    Ok(printed.split_whitespace().collect::<Vec<_>>().join(" "))
}
