//! The program `sandprobe`.

#[cfg(any(test, target_env = "musl"))]
mod memcmp;
#[cfg(all(target_arch = "x86_64", any(test, target_env = "musl")))]
mod memcpy;

use std::process::ExitCode;

fn main() -> ExitCode {
    probe_user::cli::main(std::env::args_os())
}
