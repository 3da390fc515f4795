//! Paths in this repository, and how its tools are run.

use anyhow::{Context as _, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, iter};

/// The repository's root folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Returns the folder of all build results.
pub(crate) fn target_dir() -> PathBuf {
    root().join("target")
}

/// Returns the cargo that runs this program, in the repository's root.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).env("PATH", path());
    cargo
}

/// Returns PATH with the folder of `cargo install`, which may be missing from it on a fresh machine.
pub(crate) fn path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))) else {
        return path;
    };
    env::join_paths(env::split_paths(&path).chain([home.join("bin")])).unwrap_or(path)
}

/// Returns this machine's Rust target with musl, for the static agent.
pub(crate) fn static_target() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

/// Finds the program of this name in PATH, or in the folders that only root's PATH has.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Runs a command with its output shown; a failure names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Runs a command and returns its output without the newline at the end.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(
        out.status.success(),
        "{} ended with {}: {}",
        line(command),
        out.status,
        String::from_utf8_lossy(&out.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

/// Returns the command as a user would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = iter::once(program.file_name().unwrap_or(program.as_os_str())).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
