//! The program `sandprobe`.

use std::process::ExitCode;

fn main() -> ExitCode {
    probe_user::cli::main(std::env::args_os())
}
