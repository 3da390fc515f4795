//! Builds static programs for an architecture that is not this machine's.

use crate::arch::Arch;
use crate::package::{self, Need};
use crate::toolchain;
use anyhow::Result;
use std::process::Command;

/// A C cross compiler, which also links.
struct Compiler {
    program: &'static str,
    needs: [Need; 2],
}

const fn compiler(arch: Arch) -> Compiler {
    match arch {
        Arch::X86_64 => Compiler {
            program: "x86_64-linux-gnu-gcc",
            needs: [
                Need::any(&["x86_64-linux-gnu-gcc"], "gcc-x86-64-linux-gnu"),
                Need::any(&["/usr/x86_64-linux-gnu/include/stdio.h"], "libc6-dev-amd64-cross"),
            ],
        },
        Arch::Aarch64 => Compiler {
            program: "aarch64-linux-gnu-gcc",
            needs: [
                Need::any(&["aarch64-linux-gnu-gcc"], "gcc-aarch64-linux-gnu"),
                Need::any(&["/usr/aarch64-linux-gnu/include/stdio.h"], "libc6-dev-arm64-cross"),
            ],
        },
    }
}

/// Installs what building for this architecture needs.
pub(crate) fn ensure(arch: Arch) -> Result<()> {
    toolchain::target(&arch.target())?;
    if arch.is_ours() { Ok(()) } else { package::ensure(&compiler(arch).needs) }
}

/// Makes cargo build for this architecture.
pub(crate) fn cargo(command: &mut Command, arch: Arch) {
    command.args(["--target", &arch.target()]);
    if let Some(program) = linker(arch) {
        let target = arch.target().replace('-', "_");
        command.env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), program);
        command.env(format!("CC_{target}"), program);
    }
}

/// Returns the linker for another architecture; rustc knows the one for this machine's own.
pub(crate) fn linker(arch: Arch) -> Option<&'static str> {
    (!arch.is_ours()).then(|| compiler(arch).program)
}
