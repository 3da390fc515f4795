//! `cargo xtask measure`: figures on the size and the structure of the product's source.
//!
//! It parses the source and does not compile it, so a name is matched by its text and not by its type. Unit
//! tests, comments and documentation do not count, nor do `tests/` and `xtask/`.

mod count;
mod cycle;
mod function;
mod idiom;
mod module;
mod program;
mod resolve;
mod token;

use crate::workspace;
use anyhow::{Context as _, Result};
use cycle::Cycle;
pub(crate) use idiom::IDIOMS;
use module::Module;
use std::fs;
use std::path::PathBuf;

/// The crates that make up the agent.
const CRATES: [&str; 4] = ["probe-common", "probe-ebpf", "probe-engine", "probe-user"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also name each private function that is used once, and each place of an idiom
    #[arg(long)]
    list: bool,
    /// Print instead the bytes of each crate in this program, which must have its symbols
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    program: Option<PathBuf>,
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
    /// Where each idiom is, as `module:line`.
    idioms: [Vec<String>; IDIOMS.len()],
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(program) = &args.program {
        return program::print(program);
    }
    let crates = CRATES.into_iter().map(figures_of).collect::<Result<Vec<_>>>()?;
    print_table(&crates);
    print_idioms(&crates);
    for figures in &crates {
        print_lists(figures, args.list);
    }
    Ok(())
}

fn figures_of(name: &'static str) -> Result<Figures> {
    let source = workspace::root().join(name).join("src");
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| source.join(root).is_file());
    let modules = module::load(roots, &|path| {
        let path = source.join(path);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    })?;
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
        idioms: idioms(modules),
    }
}

fn idioms(modules: &[Module]) -> [Vec<String>; IDIOMS.len()] {
    let mut all: [Vec<String>; IDIOMS.len()] = Default::default();
    for module in modules {
        for (all, places) in all.iter_mut().zip(idiom::places(module)) {
            all.extend(places);
        }
    }
    all
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

/// How often the product has each idiom for 1,000 lines of code, beside the projects that docs/style.md
/// names.
fn print_idioms(crates: &[Figures]) {
    println!("\n{:<102}{:>14}", "for 1,000 lines of code", "others at most");
    let all_lines: usize = crates.iter().map(|it| it.lines).sum();
    for (at, idiom) in IDIOMS.iter().enumerate() {
        let mut values = String::new();
        let mut all = 0;
        for figures in crates {
            let count = figures.idioms[at].len();
            all += count;
            values += &format!("{:>14.2}", per_thousand(count, figures.lines));
        }
        println!("{:<32}{values}{:>14.2}{:>14.2}", idiom.title, per_thousand(all, all_lines), idiom.anchor);
    }
}

fn per_thousand(count: usize, lines: usize) -> f64 {
    count as f64 * 1000.0 / lines.max(1) as f64
}

/// What tidy checks of the agent's crates, and of this one's cycles.
pub(crate) struct Structure {
    /// A line for each import cycle.
    pub(crate) cycles: Vec<String>,
    /// How often each of [`IDIOMS`] is used.
    pub(crate) idioms: [usize; IDIOMS.len()],
}

pub(crate) fn structure() -> Result<Structure> {
    let mut structure = Structure { cycles: Vec::new(), idioms: Default::default() };
    let xtask = figures_of("xtask")?;
    structure.cycles.extend(xtask.cycles.iter().map(|cycle| cycle_line("xtask", cycle)));
    for name in CRATES {
        let figures = figures_of(name)?;
        structure.cycles.extend(figures.cycles.iter().map(|cycle| cycle_line(name, cycle)));
        for (count, places) in structure.idioms.iter_mut().zip(figures.idioms) {
            *count += places.len();
        }
    }
    Ok(structure)
}

fn cycle_line(name: &str, Cycle { parent, members, files }: &Cycle) -> String {
    format!("{name}: import cycle in {parent}, {files} files: {}", members.join(" "))
}

fn print_lists(figures: &Figures, with_places: bool) {
    let Figures { name, cycles, large, single, idioms, .. } = figures;
    for cycle in cycles {
        println!("\n{}", cycle_line(name, cycle));
    }
    if !large.is_empty() {
        let large: Vec<_> = large.iter().map(|(name, fields)| format!("{name} ({fields})")).collect();
        println!("\n{name}: types with more than 12 fields: {}", large.join(", "));
    }
    if !with_places {
        return;
    }
    if !single.is_empty() {
        println!("\n{name}: private functions used once:\n  {}", single.join("\n  "));
    }
    for (idiom, places) in IDIOMS.iter().zip(idioms) {
        if !places.is_empty() {
            println!("\n{name}: {}:\n  {}", idiom.title, places.join("\n  "));
        }
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
