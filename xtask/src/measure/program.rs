//! The bytes of each crate in a built program, by its symbols.

use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// This many crates have a row of their own.
const ROWS: usize = 40;

/// Prints how many bytes of code and data each crate has in the program. Generic code counts for the crate
/// that wrote it.
pub(super) fn print(program: &Path) -> Result<()> {
    let mut nm = Command::new("nm");
    nm.args(["--print-size", "--demangle"]).arg(program);
    let output = nm.output().context("cannot run nm of binutils")?;
    ensure!(
        output.status.success(),
        "nm cannot read {}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let crates = by_crate(&String::from_utf8_lossy(&output.stdout));
    ensure!(
        !crates.is_empty(),
        "{} has no symbols: build it with CARGO_PROFILE_RELEASE_STRIP=false cargo xtask build",
        program.display()
    );
    let all: u64 = crates.iter().map(|(_, bytes)| bytes).sum();
    for (name, bytes) in crates.iter().take(ROWS) {
        println!("{:>12}  {:>5.1} %  {name}", bytes, percent(*bytes, all));
    }
    let rest: u64 = crates.iter().skip(ROWS).map(|(_, bytes)| bytes).sum();
    println!("{rest:>12}  {:>5.1} %  {} others", percent(rest, all), crates.len().saturating_sub(ROWS));
    println!("{all:>12}          all symbols");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn percent(bytes: u64, all: u64) -> f64 {
    100.0 * bytes as f64 / all as f64
}

/// Sums the symbols of each crate, the largest first.
fn by_crate(symbols: &str) -> Vec<(String, u64)> {
    let mut crates: BTreeMap<String, u64> = BTreeMap::new();
    for line in symbols.lines() {
        let mut words = line.splitn(4, ' ');
        // The address, the size, the type and the name. Symbols without a size have fewer words.
        let (Some(_), Some(size), Some(_), Some(name)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(size) = u64::from_str_radix(size, 16) else { continue };
        *crates.entry(crate_of(name).to_owned()).or_default() += size;
    }
    let mut crates: Vec<_> = crates.into_iter().collect();
    crates.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    crates
}

/// Returns the crate that a demangled name begins with. Names without a path are those of C and assembler.
fn crate_of(name: &str) -> &str {
    let mut rest = name;
    loop {
        let before = rest;
        for skipped in ["<", "&", "*", "(", "[", "mut ", "const ", "dyn ", "impl ", "unsafe ", "extern "] {
            rest = rest.strip_prefix(skipped).unwrap_or(rest);
        }
        if rest == before {
            break;
        }
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    match rest.split_at(end) {
        // The hash of a crate can follow its name.
        (name, rest) if rest.starts_with("::") || rest.starts_with('[') => name,
        _ => "C and assembler",
    }
}

#[cfg(test)]
mod tests {
    use super::{by_crate, crate_of};

    #[test]
    fn a_symbol_counts_for_the_crate_that_wrote_it() {
        for (name, expected) in [
            ("probe_engine::engine::Engine::call", "probe_engine"),
            ("<alloc::vec::Vec<probe_engine::X> as core::clone::Clone>::clone", "alloc"),
            ("<&mut serde_json::ser::Serializer<W> as serde::Serializer>::serialize_str", "serde_json"),
            ("<dyn core::any::Any>::is", "core"),
            ("memcpy", "C and assembler"),
            ("ring_core_0_17_14__bn_mul_mont", "C and assembler"),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }

    #[test]
    fn symbols_without_a_size_are_left_out() {
        let symbols = "0000000000004000 T _start\n0000000000004010 0000000000000020 t a::f\n\
                       0000000000004030 0000000000000002 t b::f\n0000000000004040 00000001 t a::g\n";
        assert_eq!(by_crate(symbols), [("a".to_owned(), 0x21), ("b".to_owned(), 2)]);
    }
}
