//! Runs a private containerd while a command runs, or until ctrl-C, and removes all traces of it.

use std::{
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Parser;
use tests::{
    containerd::{Containerd, Options},
    interrupt::Interrupt,
};

#[derive(Parser)]
#[command(about = "Runs a private containerd while a command runs, or until ctrl-C")]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// The command to run, with the socket in CRI_SOCKET
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let interrupt = Interrupt::watch()?;
    let containerd = Containerd::start(&cli.options)?;
    let code = run(&containerd, &cli.command, &interrupt);
    containerd.stop()?;
    code
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn run(containerd: &Containerd, command: &[String], interrupt: &Interrupt) -> Result<ExitCode> {
    const LOOK: Duration = Duration::from_millis(50);
    let Some((program, arguments)) = command.split_first() else {
        println!("{}", containerd.socket().display());
        while !interrupt.wait(Duration::MAX) {}
        return Ok(ExitCode::SUCCESS);
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env("CRI_SOCKET", containerd.socket())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt.wait(LOOK) {
            // A ctrl-C also reached the command, which has the same terminal. A SIGTERM reached only this
            // program, and the pods are about to be removed.
            child.kill().with_context(|| format!("end {program}"))?;
            break child.wait()?;
        }
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
