//! `cargo xtask tidy`: checks rules about the source that no compiler checks.

mod arrow;
mod comment;
mod idiom;
mod text;
mod world;

use crate::{measure, workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository, by its path from the root.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) fn run() -> Result<()> {
    let problems = problems(workspace::root())?;
    for problem in &problems {
        println!("{problem}");
    }
    ensure!(problems.is_empty(), "tidy: {} found", problems.len());
    println!("tidy: nothing found");
    Ok(())
}

fn problems(root: &Path) -> Result<Vec<String>> {
    let sources = sources(root)?;
    let mut found: Vec<String> = sources.iter().flat_map(text::problems).collect();
    found.extend(arrow::problems(&sources));
    found.extend(world::problems(&sources));
    found.extend(sources.iter().flat_map(comment::problems));
    let structure = measure::structure()?;
    found.extend(structure.cycles);
    found.extend(idiom::problems(structure.idioms));
    found.sort();
    Ok(found)
}

pub(crate) fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if is_skipped(&entry.file_name()) {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                sources.extend(source(root, entry.path())?);
            }
        }
    }
    Ok(sources)
}

/// Git's own data (a folder or, in a linked worktree, a file), and build results.
fn is_skipped(name: &std::ffi::OsStr) -> bool {
    name == ".git" || name == "target"
}

fn source(root: &Path, path: PathBuf) -> Result<Option<Source>> {
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        // A temporary file of an editor may be gone by now.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
    Ok(String::from_utf8(bytes).ok().map(|text| Source { path, text }))
}

#[cfg(test)]
mod tests {
    use super::{problems, workspace};

    #[test]
    fn this_repository_is_tidy() {
        let problems = problems(workspace::root()).unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
