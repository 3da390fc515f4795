//! sandprobe, for tests that start it as a command.

use std::process::ExitCode;

fn main() -> ExitCode {
    probe_user::cli::main(std::env::args_os())
}
