//! The tables of `sandprobe export`, and the questions over them, on DuckDB and on ClickHouse itself (chDB).
//! The answers are compared with a brute force over the lines. The fleet is made from recordings; the long
//! run has 1,000 nodes for a day.

mod brute;
mod nodes;
mod planted;
mod restarts;
mod server;
mod sources;
mod template;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use serde_json::Value;
use tempfile::TempDir;
use tests::machine;

use brute::Brute;
use nodes::{Fleet, Size};
use server::{PASSWORD, Server, USER};

const SMALL: Size = Size { nodes: 60, pods: 20 };
const SOAK: Size = Size { nodes: 1000, pods: 40 };
/// Seconds that a question may take in the long run.
const LIMIT: f64 = 2.0;
/// The folder with the engines, from xtask.
const ENGINES: &str = "SANDPROBE_ENGINES";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn recording(name: &str) -> PathBuf {
    root().join("tests/data/recordings").join(name)
}

fn sandprobe() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exporter"));
    // Variables of the developer's machine are for another ClickHouse.
    for variable in ["CLICKHOUSE_USER", "CLICKHOUSE_PASSWORD", "SANDPROBE_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

/// Returns the output of a command that succeeds.
#[track_caller]
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// Returns the error output of a command that is refused.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("it starts");
    let told = String::from_utf8(stderr).expect("text");
    assert_eq!((status.code(), told.lines().count()), (Some(2), 1), "{told}");
    told
}

/// Returns the lines of the recorded pods, and of the recorded boot.
fn recorded() -> (String, String) {
    let events = said(sandprobe().args(["replay", "-o", "json"]).arg(recording("demo.jsonl")));
    let boots =
        said(sandprobe().args(["boot", "-o", "json", "--replay"]).arg(recording("boots/restart.jsonl")));
    (events, boots.lines().next().expect("a boot").to_owned())
}

/// A fleet's lines in files, and the answers to the questions over them.
struct Made {
    files: Vec<PathBuf>,
    brute: Brute,
    /// Bytes of all lines.
    bytes: usize,
}

fn make(size: Size, place: &Path) -> Made {
    let (events, boot) = recorded();
    let restart = said(
        sandprobe()
            .args(["boot", "--restarts", "-o", "json", "--replay"])
            .arg(recording("boots/runtime-restart.jsonl")),
    );
    let fleet = Fleet::new(size, &events, &boot, restart.lines().next().expect("a restart"));
    let (mut brute, mut files, mut bytes) = (Brute::default(), Vec::new(), 0);
    let boots = fleet.boots();
    brute.read(&boots);
    let mut put = |name: String, lines: &str| {
        let file = place.join(name);
        fs::write(&file, lines).expect("a file");
        files.push(file);
    };
    for (lines, number) in fleet.nodes().zip(0..) {
        brute.read(&lines);
        bytes += lines.len();
        put(format!("{number:04}.jsonl"), &lines);
    }
    // The order of the files does not matter: boots give facts about the nodes of the other files.
    put("boots.jsonl".to_owned(), &boots);
    Made { files, brute, bytes }
}

/// The rows of each question in one order, and its time.
type Answers = BTreeMap<String, (Vec<String>, f64)>;

fn ask(engine: &str, folder: &Path, requests: Option<&Path>) -> Answers {
    let engines =
        env::var_os(ENGINES).expect("`cargo xtask test` fetches DuckDB and chDB and says where they are");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", engines).arg(root().join("tests/fleet/engines.py"));
    python.arg(engine).arg(folder).arg(root().join("deploy/fleet").join(engine)).args(requests);
    let answers: BTreeMap<String, Value> = serde_json::from_str(&said(&mut python)).expect("JSON");
    let answer = |(question, it): (String, Value)| {
        let rows = it["rows"].as_array().expect("rows").iter().map(Value::to_string);
        (question, (sorted(rows), it["seconds"].as_f64().expect("a number")))
    };
    answers.into_iter().map(answer).collect()
}

fn sorted(rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    rows
}

/// Compares the answers with the brute force's. Every question must have some.
#[track_caller]
fn check(engine: &str, answers: &Answers, brute: &Brute) {
    for (question, rows) in brute.answers() {
        let expected = sorted(rows.into_iter().map(|row| Value::from(row).to_string()));
        assert!(!expected.is_empty(), "nothing in the fleet answers {question}");
        let (rows, _) = answers.get(question).unwrap_or_else(|| panic!("{engine} was not asked {question}"));
        let missing: Vec<_> = expected.iter().filter(|row| !rows.contains(row)).take(5).collect();
        let wrong: Vec<_> = rows.iter().filter(|row| !expected.contains(row)).take(5).collect();
        assert!(*rows == expected, "{engine}, {question}: missing {missing:#?}, wrong {wrong:#?}");
    }
}

fn export(files: &[PathBuf], folder: &Path) -> Command {
    let mut command = sandprobe();
    command.arg("export").arg("--parquet").arg(folder).args(files);
    command
}

#[test]
fn the_questions_have_the_answers_of_brute_force_on_both_engines() {
    if machine::is_soak() {
        return the_questions_of_a_day_of_1000_nodes();
    }
    let place = TempDir::new().expect("a folder");
    let lines = place.path().join("lines");
    fs::create_dir(&lines).expect("a folder");
    let Made { mut files, brute, .. } = make(SMALL, &lines);
    let folder = place.path().join("tables");
    let server = Server::start(&place.path().join("requests"));
    let mut loaded = export(&files, &folder);
    loaded
        .args(["--clickhouse", &server.url, "--clickhouse-user", USER])
        .env("CLICKHOUSE_PASSWORD", PASSWORD);
    let told = said(&mut loaded);
    assert!(
        told.starts_with("60 boots, ") && told.contains(&format!(" {} events, ", brute.events)),
        "{told}"
    );
    assert!(told.contains(&format!(" {} restarts, ", 60 * restarts::EACH)), "{told}");
    check("duckdb", &ask("duckdb", &folder, None), &brute);
    check("clickhouse", &ask("clickhouse", &folder, Some(&server.requests)), &brute);

    // A second export changes nothing. Neither does the log of some nodes beside another log with the same
    // lines, whose beginning differs.
    let both = place.path().join("both.jsonl");
    let text: String = files[..4].iter().map(|file| fs::read_to_string(file).expect("a file")).collect();
    fs::write(&both, text).expect("a file");
    files.push(both);
    let mut again = export(&files[1..], &folder);
    let file = place.path().join("password");
    fs::write(&file, format!("{PASSWORD}\n")).expect("a file");
    again
        .args(["--clickhouse", &server.url, "--clickhouse-user", USER])
        .arg("--clickhouse-password-file")
        .arg(&file);
    said(&mut again);
    check("duckdb", &ask("duckdb", &folder, None), &brute);
    check("clickhouse", &ask("clickhouse", &folder, Some(&server.requests)), &brute);
}

/// Prints the time of each question, and the sizes for docs/fleet.md.
#[expect(clippy::print_stdout, reason = "the figures are what a long run is for")]
fn the_questions_of_a_day_of_1000_nodes() {
    let place = TempDir::new().expect("a folder");
    let lines = place.path().join("lines");
    fs::create_dir(&lines).expect("a folder");
    let Made { files, brute, bytes } = make(SOAK, &lines);
    let folder = place.path().join("tables");
    let begun = Instant::now();
    let told = said(&mut export(&files, &folder));
    println!("{} bytes of lines exported in {:.1} s: {told}", bytes, begun.elapsed().as_secs_f64());
    for engine in ["duckdb", "clickhouse"] {
        let answers = ask(engine, &folder, None);
        for (question, (rows, seconds)) in &answers {
            println!("{engine:<10} {question:<24} {seconds:>6.3} s {:>6} rows", rows.len());
        }
        check(engine, &answers, &brute);
        let slow = answers.iter().filter(|(question, (_, seconds))| !question.is_empty() && *seconds > LIMIT);
        let slow: Vec<_> = slow.map(|(question, (_, seconds))| (question, seconds)).collect();
        assert!(slow.is_empty(), "{engine} takes more than {LIMIT} s: {slow:?}");
    }
}

#[test]
fn each_question_is_there_for_both_engines_and_says_what_it_answers() {
    let all = |engine: &str| -> BTreeSet<String> {
        let folder = fs::read_dir(root().join("deploy/fleet").join(engine)).expect("the questions");
        let files =
            folder.map(|file| file.expect("a file").path()).filter(|file| !file.ends_with("tables.sql"));
        let name = |file: PathBuf| {
            let text = fs::read_to_string(&file).expect("a question");
            let first = text.lines().next().and_then(|line| line.strip_prefix("-- "));
            let head: String = text.lines().take_while(|line| line.starts_with("--")).collect();
            assert!(first.is_some() && head.contains('?'), "{}", file.display());
            file.file_name().expect("a name").to_string_lossy().into_owned()
        };
        files.map(name).collect()
    };
    assert_eq!(all("duckdb"), all("clickhouse"));
    let names = Brute::default().answers().keys().map(|name| format!("{name}.sql")).collect();
    assert_eq!(all("duckdb"), names);
}
