//! `cargo xtask measure`: figures on the size and the structure of the product's source.
//!
//! It parses the source and does not compile it, so a name is matched by its text and not by its type. Unit tests,
//! comments and documentation do not count, nor do `tests/` and `xtask/`.

mod count;
mod cycle;
mod function;
mod module;
mod resolve;
mod token;

use crate::workspace;
use anyhow::{Context as _, Result};
use cycle::Cycle;
use module::Module;
use std::{fs, path::Path};

/// The crates that make up the agent.
const CRATES: [&str; 4] = ["probe-common", "probe-ebpf", "probe-engine", "probe-user"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also name each private function that is used once
    #[arg(long)]
    list: bool,
}

/// The figures of one crate.
struct Figures {
    name: &'static str,
    lines: usize,
    public: usize,
    features: usize,
    private: usize,
    /// Private functions with one use, as `module::function`.
    single: Vec<String>,
    /// Types with many fields: their name and how many.
    large: Vec<(String, usize)>,
    cycles: Vec<Cycle>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let crates = CRATES.into_iter().map(figures_of).collect::<Result<Vec<_>>>()?;
    print_table(&crates);
    for figures in &crates {
        print_lists(figures, args.list);
    }
    Ok(())
}

fn figures_of(name: &'static str) -> Result<Figures> {
    let source = workspace::root().join(name).join("src");
    let read = |path: &Path| {
        let path = source.join(path);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| source.join(root).is_file());
    let modules = module::load(roots, &read)?;
    Ok(measure(name, &modules))
}

fn measure(name: &'static str, modules: &[Module]) -> Figures {
    let functions = function::private(modules);
    let sum = |count: fn(&Module) -> usize| modules.iter().map(count).sum();
    Figures {
        name,
        lines: sum(|module| token::lines(&module.tokens)),
        public: sum(count::public),
        features: sum(|module| token::features(module.tokens.clone())),
        private: functions.len(),
        single: functions.into_iter().filter(|it| it.is_single_use).map(|it| it.name).collect(),
        large: modules.iter().flat_map(count::large).collect(),
        cycles: cycle::find(modules),
    }
}

fn print_table(crates: &[Figures]) {
    type Figure = fn(&Figures) -> usize;
    let rows: [(&str, Figure); 7] = [
        ("lines of code", |it| it.lines),
        ("public items", |it| it.public),
        ("cfg(feature) sites", |it| it.features),
        ("private functions", |it| it.private),
        ("  of those used once", |it| it.single.len()),
        ("types with more than 12 fields", |it| it.large.len()),
        ("import cycles", |it| it.cycles.len()),
    ];
    let names: String = crates.iter().map(|it| format!("{:>14}", it.name)).collect();
    println!("{:<32}{names}{:>14}", "", "all");
    for (title, figure) in rows {
        let values: String = crates.iter().map(|it| format!("{:>14}", figure(it))).collect();
        println!("{title:<32}{values}{:>14}", crates.iter().map(figure).sum::<usize>());
    }
}

/// A line for each import cycle in the agent's crates.
pub(crate) fn cycles() -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for name in CRATES {
        lines.extend(figures_of(name)?.cycles.iter().map(|cycle| cycle_line(name, cycle)));
    }
    Ok(lines)
}

fn cycle_line(name: &str, Cycle { parent, members, files }: &Cycle) -> String {
    format!("{name}: import cycle in {parent}, {files} files: {}", members.join(" "))
}

fn print_lists(figures: &Figures, with_functions: bool) {
    let Figures { name, cycles, large, single, .. } = figures;
    for cycle in cycles {
        println!("\n{}", cycle_line(name, cycle));
    }
    if !large.is_empty() {
        let large: Vec<_> = large.iter().map(|(name, fields)| format!("{name} ({fields})")).collect();
        println!("\n{name}: types with more than 12 fields: {}", large.join(", "));
    }
    if with_functions && !single.is_empty() {
        println!("\n{name}: private functions used once:\n  {}", single.join("\n  "));
    }
}

#[cfg(test)]
mod tests {
    use super::{CRATES, figures_of, module};
    use anyhow::Context as _;
    use std::path::Path;

    /// The modules of a crate that consists of these files.
    pub(super) fn modules(files: &[(&str, &str)]) -> Vec<module::Module> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned()).context("no such file")
        };
        module::load(["lib.rs"], &read).unwrap()
    }

    #[test]
    fn this_repository_can_be_measured() {
        for name in CRATES {
            let figures = figures_of(name).unwrap();
            assert!(figures.lines > 100 && figures.private > 0, "{name}");
        }
    }
}
