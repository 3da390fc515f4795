//! Shell completions and manual pages.
//!
//! **Invariant:** both are made from the definitions of `--help`, and do not depend on the machine or the
//! date.

#[cfg(test)]
mod reference;

use std::{fs, path::PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::{Cli, ExitStatus, args::made, output};

const NAME: &str = "sandprobe";

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// The page of this command; without it, the page of sandprobe itself
    #[arg(value_name = "COMMAND")]
    command: Option<String>,

    /// Write every page into this directory instead, as sandprobe.1, sandprobe-run.1 and so on
    #[arg(long, value_name = "DIR", conflicts_with = "command", value_parser = made())]
    dir: Option<PathBuf>,
}

impl Completions {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), NAME, &mut script);
        output::write(&mut script)?;
        Ok(ExitStatus::Ok)
    }
}

impl Man {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        let pages = pages();
        if let Some(dir) = &self.dir {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            for page in &pages {
                let path = dir.join(format!("{}.1", page.name));
                fs::write(&path, page.roff()?).with_context(|| format!("cannot write {}", path.display()))?;
            }
            return Ok(ExitStatus::Ok);
        }
        let name =
            self.command.as_ref().map_or_else(|| NAME.to_owned(), |command| format!("{NAME}-{command}"));
        let Some(page) = pages.iter().find(|page| page.name == name) else {
            bail!("there is no page {name}; sandprobe man prints the one that lists all commands");
        };
        output::write(&mut page.roff()?)?;
        Ok(ExitStatus::Ok)
    }
}

/// A page of section 1.
struct Page {
    /// Its name for man(1).
    name: String,
    command: Command,
}

impl Page {
    fn roff(&self) -> anyhow::Result<Vec<u8>> {
        let mut roff = Vec::new();
        clap_mangen::Man::new(self.command.clone()).render(&mut roff)?;
        Ok(roff)
    }
}

/// The pages of the program and of each command.
fn pages() -> Vec<Page> {
    let mut whole = Cli::command();
    // Adds the global flags to each command, and its name for man(1).
    whole.build();
    let commands: Vec<Page> = whole
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .map(|command| Page { name: format!("{NAME}-{}", command.get_name()), command: command.clone() })
        .collect();
    std::iter::once(Page { name: NAME.to_owned(), command: whole }).chain(commands).collect()
}
