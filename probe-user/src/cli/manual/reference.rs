//! Compares the documents with the commands: docs/cli.md is generated, the manual has every flag, and no
//! document mentions an unknown flag.
//!
//! The documents describe the program with the feature `live`.
#![cfg(feature = "live")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, Command, CommandFactory, Parser};

use super::{
    super::{Cli, cluster::Cluster},
    Page, pages,
};
use crate::golden;

/// Flags of other programs in the documents: cargo, xtask, kubectl, helm and similar.
const OTHERS: &[&str] = &[
    "--aarch64",
    "--arch",
    "--attach-acr",
    "--bundle",
    "--cascade",
    "--certificate-identity",
    "--certificate-oidc-issuer",
    "--check",
    "--containerd",
    "--copy",
    "--create-namespace",
    "--fast",
    "--field-selector",
    "--for",
    "--force",
    "--format",
    "--from-file",
    "--from-report",
    "--full",
    "--home",
    "--id",
    "--ignore-missing",
    "--image",
    "--ip",
    "--jq",
    "--json",
    "--kernel",
    "--maintainer",
    "--matrix",
    "--minutes",
    "--name",
    "--namespace",
    "--net",
    "--no-hooks",
    "--no-trunc",
    "--now",
    "--package",
    "--password-stdin",
    "--pin",
    "--predicate-type",
    "--program",
    "--quick",
    "--repo",
    "--reset-then-reuse-values",
    "--reuse-values",
    "--root",
    "--runtime",
    "--set",
    "--set-file",
    "--show-problem-ips",
    "--sign",
    "--signer-workflow",
    "--since",
    "--soak",
    "--subresource",
    "--tag",
    "--test",
    "--type",
    "--version",
];

const TOP: &str = "\
# Commands and flags

Each command with all its arguments, as in `--help` and the manual (`sandprobe man COMMAND`). [commands.md](commands.md)
says what the commands are for. A test generates this page from the program.
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program with its commands and flags.
fn whole() -> Command {
    let mut whole = Cli::command();
    whole.build();
    whole
}

/// The plugin of kubectl.
fn plugin() -> Command {
    let mut plugin = Cluster::command();
    plugin.build();
    plugin
}

fn commands(whole: &Command) -> impl Iterator<Item = &Command> {
    whole.get_subcommands().filter(|command| command.get_name() != "help")
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
}

/// How a flag is typed: `-o, --output FORM`.
fn typed(arg: &Arg) -> String {
    let names =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect::<Vec<_>>();
    let takes = arg.get_num_args().is_some_and(|number| number.takes_values());
    let value = if takes { names.join(" ") } else { String::new() };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags = [short, long].into_iter().flatten().collect::<Vec<_>>().join(", ");
    [flags, value].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values = arg.get_possible_values();
    let takes = arg.get_num_args().is_some_and(|number| number.takes_values());
    if takes && (1..=8).contains(&values.len()) {
        let each = values.iter().map(|value| format!("`{}`", value.get_name())).collect::<Vec<_>>();
        write!(text, ": {}", each.join(", ")).expect("text");
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(", ");
    if takes && !defaults.is_empty() {
        write!(text, " [default: `{defaults}`]").expect("text");
    }
    if let Some(variable) = arg.get_env() {
        write!(text, " [variable: `{}`]", variable.to_string_lossy()).expect("text");
    }
    text.replace('|', "\\|").replace('\n', " ")
}

fn section(text: &mut String, title: &str, command: &Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(text, "\n## {title}\n\n{about}.\n").expect("text");
    let rows: Vec<_> = shown(command).filter(|arg| !arg.is_global_set()).collect();
    if !rows.is_empty() {
        text.push_str("\n| | |\n|---|---|\n");
    }
    for arg in rows {
        writeln!(text, "| `{}` | {} |", typed(arg), meaning(arg)).expect("text");
    }
}

fn page() -> String {
    let whole = whole();
    let mut text = TOP.to_owned();
    for command in commands(&whole) {
        section(&mut text, &format!("sandprobe {}", command.get_name()), command);
    }
    text.push_str("\n## All of them\n\n| | |\n|---|---|\n");
    for arg in shown(&whole).filter(|arg| arg.is_global_set()) {
        writeln!(text, "| `{}` | {} |", typed(arg), meaning(arg)).expect("text");
    }
    text.push_str(
        "| `-h, --help` | Print help |\n| `-V, --version` | Print version; of sandprobe itself |\n",
    );
    let plugin = plugin();
    section(&mut text, "kubectl sandprobe", &plugin);
    text.push_str("\n| with each command | |\n|---|---|\n");
    for arg in shown(&plugin).filter(|arg| arg.is_global_set()) {
        writeln!(text, "| `{}` | {} |", typed(arg), meaning(arg)).expect("text");
    }
    for command in commands(&plugin) {
        section(&mut text, &format!("kubectl sandprobe {}", command.get_name()), command);
    }
    text
}

#[test]
fn the_page_of_commands_is_the_program_s_own() {
    golden::expect("docs/cli.md", &page());
}

fn flags_of(command: &Command) -> BTreeSet<String> {
    shown(command).filter_map(Arg::get_long).map(|long| format!("--{long}")).collect()
}

/// Returns the flags `--like-this` in a text.
fn flags_in(text: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        if text[..at].ends_with(|c: char| c == '-' || c.is_alphanumeric()) {
            continue;
        }
        let rest = &text[at + 2..];
        let end = rest
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
            .unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('-');
        if name.starts_with(|c: char| c.is_ascii_lowercase()) {
            flags.insert(format!("--{name}"));
        }
    }
    flags
}

/// Returns the text of a page without roff escapes.
fn plain(page: &Page) -> String {
    let text = String::from_utf8(page.roff().expect("a page")).expect("text").replace("\\-", "-");
    ["\\fB", "\\fI", "\\fR"].iter().fold(text, |text, font| text.replace(font, ""))
}

#[test]
fn each_page_of_the_manual_has_the_flags_of_its_help() {
    for page in pages() {
        let mut help = page.command.clone();
        let help = flags_in(&help.render_long_help().to_string());
        let own = flags_of(&page.command);
        let told = flags_in(&plain(&page));
        assert!(own.is_subset(&help), "{}: --help lacks {:?}", page.name, own.difference(&help));
        assert!(own.is_subset(&told), "{}: the page lacks {:?}", page.name, own.difference(&told));
    }
}

#[test]
fn the_manual_names_every_command() {
    let whole = whole();
    let pages = pages();
    let first = plain(&pages[0]);
    for command in commands(&whole) {
        let name = format!("sandprobe-{}", command.get_name());
        assert!(pages.iter().any(|page| page.name == name), "no page {name}");
        assert!(first.contains(&name), "sandprobe(1) does not lead to {name}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Cli::command(), super::NAME, &mut script);
        let script = String::from_utf8(script).expect("text");
        for command in commands(&whole()) {
            assert!(script.contains(command.get_name()), "{shell} lacks {}", command.get_name());
        }
    }
}

/// README.md, CONTRIBUTING.md and each page of docs/, by name. Pages of known problems are left out, because
/// their commands are of other programs.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("docs") {
            let path = entry.expect("an entry").path();
            if path.ends_with("docs/known") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    found.sort();
    found.iter().map(|path| (path.display().to_string(), fs::read_to_string(path).expect("a page"))).collect()
}

#[test]
fn no_document_tells_of_a_flag_that_is_not_there() {
    let whole = whole();
    let plugin = plugin();
    let programs = [&whole, &plugin];
    let all = programs.into_iter().flat_map(commands).chain(programs);
    let mut known: BTreeSet<String> = all.flat_map(flags_of).collect();
    known.extend(["--help".to_owned()]);
    known.extend(OTHERS.iter().map(|flag| (*flag).to_owned()));
    for (name, text) in documents() {
        let told = flags_in(&text);
        let wrong: Vec<_> = told.difference(&known).collect();
        assert!(wrong.is_empty(), "{name} tells of {wrong:?}");
    }
}

#[test]
fn the_readme_has_every_command() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    for command in commands(&whole()) {
        let row = format!("| `sandprobe {}", command.get_name());
        assert!(readme.contains(&row), "README.md has no row of {}", command.get_name());
    }
}

#[test]
fn flags_are_found_whole() {
    let found = flags_in("`--leak-grace TIME`, x--y, ---, (--all), |---|, --event=x, `--`");
    assert_eq!(found, ["--all", "--event", "--leak-grace"].map(str::to_owned).into());
}

#[test]
fn the_page_of_the_plugin_has_its_exit_codes() {
    let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "");
    let help = plugin().get_after_help().expect("its exit codes").to_string();
    let (title, codes) = help.split_once('\n').expect("a line for each");
    let codes = codes.replace("\n  1", ";\n  1").replace("\n  2", ";\n  2");
    let page = fs::read_to_string(root().join("docs/kubectl.md")).expect("the page");
    let told = spaced(&format!("{title} {codes}. "));
    assert!(spaced(&page).contains(&told), "docs/kubectl.md lacks: {told}");
}

fn is_understood(arguments: Vec<&str>) {
    let typed = arguments.join(" ");
    if let Err(error) = Cli::try_parse_from([super::NAME].into_iter().chain(arguments)) {
        panic!("{typed}: {error}");
    }
}

/// Returns the words of each command in a line for a shell. Quotes hold words together; what begins with `#`
/// is left out.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![vec![String::new()]];
    let mut quote = None;
    for c in line.chars() {
        let words = commands.last_mut().expect("a command");
        let word = words.last_mut().expect("a word");
        match c {
            '#' if quote.is_none() && word.is_empty() => break,
            '|' | '>' | ';' | '&' if quote.is_none() => commands.push(vec![String::new()]),
            ' ' if quote.is_none() => words.push(String::new()),
            '\'' | '"' if quote.is_none_or(|open| open == c) => quote = quote.xor(Some(c)),
            c => word.push(c),
        }
    }
    commands.iter_mut().for_each(|words| words.retain(|word| !word.is_empty()));
    commands
}

/// Returns the arguments of each `sandprobe` in a document's lines for a shell, and whether it is kubectl's
/// plugin.
fn own_commands(text: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    let mut is_console = false;
    // A line that ends with a backslash continues on the next one.
    for line in text.replace("\\\n", "").lines().map(str::trim) {
        if line.starts_with("```") {
            is_console = line == "```console";
        }
        if !is_console {
            continue;
        }
        let Some(typed) = line.strip_prefix("$ ").or(line.strip_prefix("# ")) else { continue };
        for words in shell_commands(typed) {
            let is_plugin = words.starts_with(&["kubectl".to_owned(), super::NAME.to_owned()]);
            let is_first = words.first().is_some_and(|word| word.trim_start_matches("./") == super::NAME);
            let program = if is_plugin {
                Some(1)
            } else if is_first {
                Some(0)
            } else {
                words.iter().position(|word| word == "/sandprobe")
            };
            found.extend(program.map(|at| (is_plugin, words[at + 1..].to_vec())));
        }
    }
    found
}

#[test]
fn commands_are_found_whole() {
    let text = "\
# sandprobe
```console
$ sandprobe findings --all | grep 'a | b' > file && ./sandprobe boot  # what it cost
$ kubectl exec \"$(kubectl get pod \\
    -o name)\" -- /sandprobe leaks
$ kubectl sandprobe pods
$ helm install sandprobe deploy
sandprobe 0.1.0
```
$ sandprobe run
";
    let told: Vec<_> =
        own_commands(text).into_iter().map(|(is_plugin, words)| (is_plugin, words.join(" "))).collect();
    let own = |words: &str| (false, words.to_owned());
    assert_eq!(told, [own("findings --all"), own("boot"), own("leaks"), (true, "pods".to_owned())]);
}

#[test]
fn the_commands_of_the_documents_are_understood() {
    let mut count = 0;
    for (name, text) in documents() {
        for (is_plugin, arguments) in own_commands(&text) {
            // It stands for any command.
            if arguments == ["COMMAND"] {
                continue;
            }
            let typed = [super::NAME].into_iter().chain(arguments.iter().map(String::as_str));
            let parsed = if is_plugin {
                Cluster::try_parse_from(typed).map(drop)
            } else {
                Cli::try_parse_from(typed).map(drop)
            };
            if let Err(error) = parsed {
                panic!("{name}: {}: {error}", arguments.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count} commands were found");
}

#[test]
fn the_unit_s_command_is_understood() {
    let unit = fs::read_to_string(root().join("deploy/systemd/sandprobe.service")).expect("the unit");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/sandprobe "));
    is_understood(command.expect("its command").split(' ').collect());
}

#[test]
fn the_manifests_command_is_understood() {
    let manifest = fs::read_to_string(root().join("deploy/manifests/sandprobe.yaml")).expect("the manifest");
    let lines = manifest.lines().map(str::trim).skip_while(|line| *line != "args:").skip(1);
    is_understood(lines.map_while(|line| line.strip_prefix("- ")).collect());
}
