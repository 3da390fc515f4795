//! The program: what was typed, to what it does, to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    probe_user::cli::main(std::env::args_os())
}
