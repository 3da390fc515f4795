//! The program `sandprobe`.

#[cfg(any(test, target_env = "musl"))]
mod memcmp;

use std::process::ExitCode;

fn main() -> ExitCode {
    probe_user::cli::main(std::env::args_os())
}
