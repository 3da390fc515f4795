//! The tasks of this repository, one verb each: `cargo xtask` lists them.
//!
//! Invariant: this crate depends on no other crate of the repository, so that it builds even if they do not.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program: its output is its result"
)]

mod arch;
mod bench;
mod bin_dir;
mod build;
mod building;
mod cross;
mod demo;
mod dist;
mod fuzz;
mod measure;
mod miri;
mod mirrors;
mod mounts;
mod package;
mod program;
mod root;
mod run;
mod setup;
mod test;
mod tidy;
mod tool;
mod toolchain;
mod vm;
mod watch;
mod workspace;

use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Everything one does to this repository")]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what is missing here for building, testing or the VMs
    Setup(setup::Args),
    /// Build the static agent, eBPF object inside, as target/dist/sandprobe
    Build(build::Args),
    /// Build the release files: static agents, packages, images, SBOMs, man pages
    Dist(dist::Args),
    /// Build the agent and watch this node live
    Run(run::Args),
    /// Run a command in a VM of a chosen kernel, container runtime and init
    Vm(vm::Args),
    /// Show pods from start to end under live hooks, or from a recording
    Demo(demo::Args),
    /// Run the tests: the fast ones, pages in a browser, this machine's kernel, the VMs
    Test(test::Args),
    /// Measure what the engine and the hooks cost, as tables and as JSON
    Bench(bench::Args),
    /// Run the fuzzers for long: any bytes as records, files, requests and state files
    Fuzz(fuzz::Args),
    /// Run tests of the pure parts in Miri, which sees undefined behaviour
    Miri,
    /// Check what the compiler does not: which module uses which, and style
    Tidy,
    /// Print figures on the source: lines, import cycles, public items, large types, idioms
    Measure(measure::Args),
    #[command(hide = true)]
    InMounts(mounts::Args),
}

fn main() -> ExitCode {
    let Some(verb) = Cli::parse().verb else {
        print!("{}", Cli::command().render_help());
        return ExitCode::SUCCESS;
    };
    let result = match verb {
        Verb::Setup(args) => setup::run(&args).map(done),
        Verb::Build(args) => build::run(&args).map(done),
        Verb::Dist(args) => dist::run(&args).map(done),
        Verb::Run(args) => run::run(&args).map(done),
        Verb::Vm(args) => vm::main(args),
        Verb::Demo(args) => demo::run(&args).map(done),
        Verb::Test(args) => test::run(&args),
        Verb::Bench(args) => bench::run(&args).map(done),
        Verb::Fuzz(args) => fuzz::run(&args).map(done),
        Verb::Miri => miri::run().map(done),
        Verb::Tidy => tidy::run().map(done),
        Verb::Measure(args) => measure::run(&args).map(done),
        Verb::InMounts(args) => mounts::run(&args).map(done),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}
