//! `sandprobe known`: the problems that sandprobe knows, from the program and from a folder of the node.

use std::{
    fmt::Write as _,
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;

use super::{ExitStatus, args::Form, output, say, table::aligned};
use crate::{
    known::{Catalogue, Problem, plain},
    sink::escape::escaped,
};

/// The folder of the node's own problems.
const FOLDER: &str = "/etc/sandprobe/known";
/// Further files of the folder are left out.
const MAX_FILES: usize = 256;
const MAX_BYTES: u64 = 64 << 10;
const NOT_YET: &str =
    "not yet: sandprobe reads the words of plugins, and not yet those of runtimes and kubelets";
/// The bits of a mode that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

#[derive(Debug, Args)]
pub(super) struct Known {
    /// The problem to show whole
    #[arg(value_name = "ID")]
    id: Option<String>,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,
}

/// Adds the problems of a folder to the built-in ones. Each file that is left out is named on standard error.
/// Returns whether there was none. A folder that was not `given` may be absent or closed to this user.
pub(super) fn read(given: Option<&Path>) -> anyhow::Result<bool> {
    let folder = given.unwrap_or(Path::new(FOLDER));
    let mut paths = match paths(folder) {
        Ok(paths) => paths,
        Err(error) => {
            let is_usual = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind());
            if given.is_none() && is_usual {
                return Ok(true);
            }
            let error = anyhow::Error::new(error);
            return Err(error.context(format!("cannot read known problems from {}", folder.display())));
        }
    };
    let mut is_whole = true;
    if paths.len() > MAX_FILES {
        let more = paths.len() - MAX_FILES;
        say(&format!(
            "{more} of {} files in {} are left out of the known problems",
            paths.len(),
            folder.display()
        ));
        paths.truncate(MAX_FILES);
        is_whole = false;
    }
    let mut catalogue = Catalogue::built_in().clone();
    for path in paths {
        match problem(&path) {
            Ok(problem) => _ = catalogue.add(problem),
            Err(error) => {
                is_whole = false;
                say(&format!("{} is left out of the known problems: {error:#}", path.display()));
            }
        }
    }
    catalogue.install();
    Ok(is_whole)
}

/// Returns the files of the folder, in the order of their names.
fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads the problem of a file. The file may be a link, as in a volume of a ConfigMap.
fn problem(path: &Path) -> anyhow::Result<Problem> {
    let id = path.file_stem().and_then(|name| name.to_str()).context("its name is not UTF-8")?;
    // To open a pipe would wait for its writer.
    ensure!(fs::metadata(path)?.is_file(), "not a regular file");
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    // Its commands are shown to root.
    ensure!(is_trusted(&about), "others than root and this user own it or may write to it");
    let mut text = String::new();
    file.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MAX_BYTES, "it has more than {MAX_BYTES} bytes");
    Problem::parse(id, &text).map_err(|error| anyhow!("{}", one_line(&error.to_string())))
}

/// Whether only root and this user can have written the file.
fn is_trusted(about: &Metadata) -> bool {
    // Without /proc only root's files count.
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    [0, user].contains(&about.uid()) && about.mode() & OTHERS_WRITE == 0
}

/// Puts the lines of a message about a file into one.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    escaped(&lines.collect::<Vec<_>>().join(" ")).into_owned()
}

impl Known {
    pub(super) fn run(&self, is_whole: bool) -> anyhow::Result<ExitStatus> {
        let catalogue = Catalogue::current();
        let shown: Vec<&Problem> = match &self.id {
            None => catalogue.problems().collect(),
            Some(id) => vec![catalogue.get(id).with_context(|| {
                format!("no known problem has the id {}; sandprobe known lists all", escaped(id))
            })?],
        };
        let mut text = match (self.output, shown.as_slice()) {
            (Form::Json, shown) => json(shown)?,
            (Form::Text, [problem]) if self.id.is_some() => whole(problem),
            (Form::Text, shown) => list(shown),
        }
        .into_bytes();
        output::write(&mut text)?;
        Ok(if is_whole { ExitStatus::Ok } else { ExitStatus::Incomplete })
    }
}

fn json(shown: &[&Problem]) -> anyhow::Result<String> {
    let mut text = String::new();
    for problem in shown {
        text += &serde_json::to_string(problem)?;
        text.push('\n');
    }
    Ok(text)
}

fn list(shown: &[&Problem]) -> String {
    let mut rows = Vec::new();
    for problem in shown {
        let is_looked_for = if problem.is_looked_for() { "yes" } else { "not yet" };
        rows.push([
            problem.id.clone(),
            is_looked_for.to_owned(),
            problem.kinds().join(","),
            problem.title.clone(),
        ]);
    }
    aligned(["ID", "FOUND", "FINDING", "TITLE"], &rows)
}

/// Writes all that is known of a problem.
fn whole(it: &Problem) -> String {
    let mut text = format!("{}\n\n", escaped(&it.title));
    _ = writeln!(text, "  id         {}", escaped(&it.id));
    _ = writeln!(text, "  finding    {}", escaped(&it.kinds().join(", ")));
    if !it.is_looked_for() {
        _ = writeln!(text, "  found      {NOT_YET}");
    }
    _ = writeln!(text, "\nWhy\n  {}", escaped(&it.cause));
    if it.patterns().next().is_some() {
        text += "\nFound by the words\n";
        for pattern in it.patterns() {
            _ = writeln!(text, "  {pattern}");
        }
    }
    text += "\nHow to repair\n";
    for line in &it.repair {
        _ = writeln!(text, "  {}", plain(line));
    }
    text += "\nKnown as\n";
    for link in &it.links {
        _ = writeln!(text, "  {}", escaped(link));
    }
    for (number, fix) in it.fixes.iter().enumerate() {
        if number == 0 {
            text += "\nFixed in\n";
        }
        let fixed: Vec<String> = fix.fixed.iter().map(ToString::to_string).collect();
        _ = writeln!(text, "  {} {}: {}", escaped(&fix.name), fixed.join(", "), escaped(&fix.what));
        _ = writeln!(text, "      {}", escaped(&fix.source));
    }
    text
}
