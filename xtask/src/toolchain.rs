//! What every build needs: a C compiler, the standard libraries, and the linker of the eBPF programs.

use crate::package::{self, Need};
use crate::{mirrors, workspace};
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, iter};

const BPF_LINKER: &str = "0.13.0";
/// The LLVM version that reads the bitcode of the pinned rustc.
const LLVM: &str = "22";

const COMPILER: &[Need] = &[
    Need::any(&["cc"], "gcc"),
    Need::any(&["/usr/include/stdio.h"], "libc6-dev"),
    // The agent is a static program. Its TLS library is built from C and assembler with musl's compiler.
    Need::any(&["musl-gcc"], "musl-tools"),
];
const LLVM_DEV: &[Need] = &[
    Need::any(&["c++"], "g++"),
    Need::package("llvm-22-dev"),
    Need::package("libzstd-dev"),
    Need::package("zlib1g-dev"),
    Need::package("libxml2-dev"),
];

/// Installs what is missing for a build.
pub(crate) fn ensure() -> Result<()> {
    package::ensure(COMPILER)?;
    let sysroot = PathBuf::from(workspace::output(Command::new("rustc").args(["--print", "sysroot"]))?);
    rust_src(&sysroot)?;
    target(&workspace::static_target())?;
    bpf_linker()
}

fn rust_src(sysroot: &Path) -> Result<()> {
    if sysroot.join("lib/rustlib/src/rust/library/core").is_dir() {
        return Ok(());
    }
    println!("setup: adding the rust-src component");
    workspace::run(Command::new("rustup").args(["component", "add", "rust-src"])).with_context(|| {
        format!(
            "rust-src is missing and rustup could not add it; Debian's trixie-backports has the same sources as \
             package rust-src 1.95: copy its /usr/src/rustc-1.95.*/library to {}/lib/rustlib/src/rust/library",
            sysroot.display()
        )
    })
}

/// Installs the standard library for an architecture.
pub(crate) fn target(triple: &str) -> Result<()> {
    let sysroot = PathBuf::from(workspace::output(Command::new("rustc").args(["--print", "sysroot"]))?);
    if sysroot.join("lib/rustlib").join(triple).join("lib").is_dir() {
        return Ok(());
    }
    println!("setup: adding the target {triple}");
    workspace::run(Command::new("rustup").args(["target", "add", triple]))
        .with_context(|| format!("the standard library for {triple} is missing and rustup could not add it"))
}

fn bpf_linker() -> Result<()> {
    let version = Command::new("bpf-linker").arg("--version").env("PATH", workspace::path()).output();
    if let Ok(out) = version
        && out.status.success()
    {
        let version = String::from_utf8_lossy(&out.stdout);
        if version.trim() != format!("bpf-linker {BPF_LINKER}") {
            println!("setup: using {} as it is here (tested with {BPF_LINKER})", version.trim());
        }
        return Ok(());
    }
    let llvm = llvm()?;
    println!("setup: building bpf-linker {BPF_LINKER}, once: about 2 min on two cores");
    let path = env::join_paths(iter::once(llvm.join("bin")).chain(env::split_paths(&workspace::path())))
        .context("a folder in PATH has a colon in its name")?;
    workspace::run(
        workspace::cargo()
            .args(["install", "bpf-linker", "--version", BPF_LINKER, "--locked", "--force"])
            .args(["--no-default-features", "--features"])
            .arg(format!("llvm-{LLVM}"))
            // Most of its time is LLVM's; optimizing its own code would double the time of the build.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .env("LLVM_PREFIX", &llvm)
            .env("PATH", path),
    )
}

/// Returns the prefix of an LLVM with headers: the user's own, or Debian's.
fn llvm() -> Result<PathBuf> {
    if let Some(prefix) = env::var_os("LLVM_PREFIX").map(PathBuf::from) {
        let version = workspace::output(Command::new(prefix.join("bin/llvm-config")).arg("--version"))?;
        ensure!(
            version.starts_with(LLVM),
            "LLVM_PREFIX holds LLVM {version}; bpf-linker needs LLVM {LLVM}: point it there, or unset it"
        );
        return Ok(prefix);
    }
    if workspace::which("apt-get").is_none() {
        bail!(
            "bpf-linker needs LLVM {LLVM} with its headers, a C++ compiler, and the headers of zstd, zlib and libxml2: \
             install them, set LLVM_PREFIX to LLVM's prefix, and run this again"
        );
    }
    if !package::is_available("llvm-22-dev") {
        mirrors::update()?;
    }
    ensure!(
        package::is_available("llvm-22-dev"),
        "bpf-linker needs LLVM {LLVM}, and no apt suite of this machine has llvm-22-dev: add LLVM's own apt repository \
         or your release's backports, or set LLVM_PREFIX to an LLVM {LLVM}, and run this again"
    );
    package::ensure(LLVM_DEV)?;
    Ok(PathBuf::from("/usr/lib/llvm-22"))
}
