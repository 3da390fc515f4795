//! Builds what the agent embeds, when the `live` feature asks for it: the eBPF object, and pages of the
//! documentation.
//!
//! This is a plain cargo call rather than `aya-build`, which takes the switch for unstable flags from its own
//! environment only, and there is no safe way to put it there.

#[cfg(not(feature = "live"))]
fn main() {
    tell_optimized();
}

/// Sets `optimized` unless the crate is compiled with `opt-level = 0`.
fn tell_optimized() {
    println!("cargo::rustc-check-cfg=cfg(optimized)");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level != "0") {
        println!("cargo::rustc-cfg=optimized");
    }
}

#[cfg(feature = "live")]
#[path = "build/docs.rs"]
mod docs;

#[cfg(feature = "live")]
fn main() {
    tell_optimized();
    if let Err(why) = ebpf::build().and_then(|()| built_docs()) {
        // This form reaches the user in one line, without the build script's own output around it.
        println!("cargo::error={why}");
    }
}

#[cfg(feature = "live")]
fn built_docs() -> Result<(), String> {
    let out = std::env::var("OUT_DIR").map_err(|error| format!("OUT_DIR as cargo sets it: {error}"))?;
    docs::build("../docs".as_ref(), out.as_ref())
}

#[cfg(feature = "live")]
mod ebpf {
    use object::build::ByteString;
    use object::build::elf::{Builder, SectionData};
    use object::elf;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};
    use std::{env, fs, io};

    const PACKAGE: &str = "probe-ebpf";

    /// Leaves the object as `$OUT_DIR/probe-ebpf.lz4`.
    pub(super) fn build() -> Result<(), String> {
        for path in [PACKAGE, "probe-common", "Cargo.lock"] {
            println!("cargo::rerun-if-changed=../{path}");
        }
        check_tools()?;

        let target = match var("CARGO_CFG_TARGET_ENDIAN")?.as_str() {
            "big" => "bpfeb-unknown-none",
            _ => "bpfel-unknown-none",
        };
        let out_dir = var("OUT_DIR")?;
        let arch = var("CARGO_CFG_TARGET_ARCH")?;
        let target_dir = target_dir(Path::new(&out_dir)).join(&arch);
        let mut cargo = Command::new(var("CARGO")?);
        cargo
            .args(["build", "--package", PACKAGE, "--release", "--target", target])
            .args(["-Z", "build-std=core", "--target-dir"])
            .arg(&target_dir)
            .env("RUSTC_BOOTSTRAP", "1")
            // The profile's own level is for the agent's libraries. `core` is inlined into the programs.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&arch, &remapped()))
            // This is clippy's, when clippy runs this script: it cannot link.
            .env_remove("RUSTC_WORKSPACE_WRAPPER");
        let out = cargo.output().map_err(|error| format!("cannot run cargo for {PACKAGE}: {error}"))?;
        if !out.status.success() {
            return Err(failure(&out));
        }

        let object = target_dir.join(target).join("release").join(PACKAGE);
        let whole =
            fs::read(&object).map_err(|error| format!("cannot read {}: {error}", object.display()))?;
        let lean =
            without_dwarf(&whole).map_err(|error| format!("cannot strip {}: {error}", object.display()))?;
        let to = Path::new(&out_dir).join(PACKAGE).with_extension("lz4");
        fs::write(&to, lz4_flex::block::compress_prepend_size(&lean))
            .map_err(|error| format!("cannot write {}: {error}", to.display()))
    }

    /// Removes the DWARF. The kernel and the loader read BTF; the DWARF that it is made from stays in the
    /// object, as four fifths of it, and the agent would carry it about.
    fn without_dwarf(whole: &[u8]) -> object::build::Result<Vec<u8>> {
        let mut builder = Builder::read(whole)?;
        for section in &mut builder.sections {
            section.delete = section.name.starts_with(b".debug_") || section.name.starts_with(b".rel.debug_");
        }
        // LLVM keeps the names of sections and of symbols in one table, this writer in two.
        let names = builder.sections.add();
        names.name = ByteString::from(".shstrtab");
        names.sh_type = elf::SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
        builder.delete_orphans();
        let mut lean = Vec::new();
        builder.write(&mut lean)?;
        Ok(lean)
    }

    /// Returns a target directory that is not the outer cargo's own, whose lock is taken while this runs. It
    /// is one for all profiles and targets, since the object is the same for each and building `core` takes a
    /// while.
    fn target_dir(out_dir: &Path) -> PathBuf {
        let outer = out_dir.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
        outer.unwrap_or(out_dir).join("bpf")
    }

    /// Returns the flags that remap paths. The object names lines of source, so the place of the sources on
    /// this machine would change its bytes. The flags are there only if the whole program is built with them.
    fn remapped() -> Vec<String> {
        let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
        let remaps = flags.split('\x1f').filter(|flag| flag.starts_with("--remap-path-prefix="));
        remaps.map(ToOwned::to_owned).collect()
    }

    fn rustflags(arch: &str, remapped: &[String]) -> String {
        let arch = if arch.starts_with("riscv64") { "riscv64" } else { arch };
        let bpf_target_arch = format!("--cfg=bpf_target_arch=\"{arch}\"");
        let ours = [bpf_target_arch.as_str(), "-Cdebuginfo=2", "-Clink-arg=--btf"];
        ours.into_iter().chain(remapped.iter().map(String::as_str)).collect::<Vec<_>>().join("\x1f")
    }

    fn check_tools() -> Result<(), String> {
        match Command::new("bpf-linker").arg("--version").output() {
            Ok(out) if out.status.success() => {}
            Ok(_) => return Err("bpf-linker is here but does not run: run `cargo xtask setup`".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("bpf-linker is not in PATH: run `cargo xtask setup`".to_owned());
            }
            Err(error) => return Err(format!("cannot run bpf-linker: {error}")),
        }
        let sysroot = Command::new(var("RUSTC")?)
            .args(["--print", "sysroot"])
            .output()
            .map_err(|error| format!("cannot run rustc: {error}"))?;
        let sysroot = String::from_utf8_lossy(&sysroot.stdout);
        if !Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir() {
            return Err("this toolchain has no rust-src component: run `cargo xtask setup`".to_owned());
        }
        Ok(())
    }

    /// Prints the compiler's own words; cargo shows each line as it is.
    fn failure(out: &Output) -> String {
        let text = String::from_utf8_lossy(&out.stderr);
        for line in text.lines() {
            println!("cargo::error={line}");
        }
        format!("{PACKAGE} did not build ({})", out.status)
    }

    fn var(name: &str) -> Result<String, String> {
        env::var(name).map_err(|error| format!("{name} as cargo sets it: {error}"))
    }
}
