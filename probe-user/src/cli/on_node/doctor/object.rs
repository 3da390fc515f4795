//! Checks the built-in eBPF object: whether it has everything that the loader needs.

use std::collections::BTreeSet;

use object::{Architecture, BinaryFormat, File, Object, ObjectSection, ObjectSymbol, SymbolSection};

use crate::{
    model::fact::Mechanism,
    sink::render::doctor::Check,
    source::live::plan::{HOOKS, Program},
};

/// The maps that the agent opens.
const MAPS: [&str; 3] = ["LIFECYCLE", "BULK", "TALLY"];
/// The global variables that the loader sets.
const KNOBS: [&str; 2] = ["OFFSETS", "SWITCHES"];

pub(super) fn object(bytes: &[u8]) -> Check {
    match examine(bytes) {
        Ok(found) => Check::full("eBPF object", found),
        Err(why) => Check::cannot("eBPF object", why).advised("this binary was built wrongly: rebuild it"),
    }
}

fn examine(bytes: &[u8]) -> Result<String, String> {
    let file = File::parse(bytes).map_err(|error| format!("not an object file: {error}"))?;
    if file.format() != BinaryFormat::Elf || !file.is_64() || file.architecture() != Architecture::Bpf {
        return Err(format!(
            "not a 64-bit eBPF ELF file but {:?} for {:?}",
            file.format(),
            file.architecture()
        ));
    }
    if file.is_little_endian() != cfg!(target_endian = "little") {
        return Err("of another byte order than this machine".to_owned());
    }
    license(&file)?;
    for section in [".BTF", ".BTF.ext"] {
        if file.section_by_name(section).is_none_or(|section| section.size() == 0) {
            return Err(format!("it has no {section}: bpf-linker was run without --btf"));
        }
    }
    let sections = sections(&file);
    let mut programs = 0;
    for (mechanism, program) in planned() {
        let section = sections.iter().find(|(symbol, _)| *symbol == program.name).map(|(_, section)| section);
        let section = section.ok_or_else(|| format!("it has no program {}", program.name))?;
        let expected = expected(mechanism, program);
        if *section != expected {
            return Err(format!("its program {} is in section {section}, not {expected}", program.name));
        }
        programs += 1;
    }
    for (names, kind) in [(&MAPS[..], ["maps", ".maps"]), (&KNOBS[..], [".rodata", ".data"])] {
        for name in names {
            let found =
                sections.iter().any(|(symbol, section)| symbol == name && kind.contains(&section.as_str()));
            if !found {
                return Err(format!("it has no {name} in {}", kind[0]));
            }
        }
    }
    Ok(format!("{programs} programs as planned, maps, license, BTF; {} KiB", bytes.len() >> 10))
}

/// The kernel offers its GPL-only helpers only to programs with such a license.
fn license(file: &File<'_>) -> Result<(), String> {
    let section = file.section_by_name("license").ok_or("it has no license section")?;
    let data = section.data().map_err(|error| format!("its license section cannot be read: {error}"))?;
    let text = String::from_utf8_lossy(data);
    let text = text.trim_end_matches('\0');
    if matches!(text, "GPL" | "GPL v2" | "Dual MIT/GPL" | "Dual BSD/GPL") {
        Ok(())
    } else {
        Err(format!("its license is {text:?}, with which the kernel refuses helpers"))
    }
}

/// Returns each defined symbol, with its section.
fn sections<'a>(file: &'a File<'_>) -> BTreeSet<(&'a str, String)> {
    let defined = file.symbols().filter_map(|symbol| {
        let SymbolSection::Section(index) = symbol.section() else { return None };
        let section = file.section_by_index(index).ok()?;
        Some((symbol.name().ok()?, section.name().ok()?.to_owned()))
    });
    defined.collect()
}

fn planned() -> impl Iterator<Item = (Mechanism, &'static Program)> {
    HOOKS
        .iter()
        .flat_map(|hook| hook.tries)
        .flat_map(|one| one.programs.iter().map(move |program| (one.mechanism, program)))
}

/// Returns the section that aya expects for a program. The section of a program whose target is given at load
/// time has no target.
fn expected(mechanism: Mechanism, program: &Program) -> String {
    let target = program.target;
    match mechanism {
        // A mechanism may have several kinds of tracepoints: only those without a category are raw.
        Mechanism::Tracepoint | Mechanism::RawTracepoint => match target.split_once(':') {
            Some((category, name)) => format!("tracepoint/{category}/{name}"),
            None => format!("raw_tp/{target}"),
        },
        Mechanism::Fentry => format!("fentry/{target}"),
        Mechanism::Fexit => format!("fexit/{target}"),
        Mechanism::Kprobe => "kprobe".to_owned(),
        Mechanism::Kretprobe => "kretprobe".to_owned(),
        Mechanism::Netlink => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use object::{File, Object as _, ObjectSection as _};

    use super::object;
    use crate::{sink::render::doctor::Grade, source::live::attach};

    #[test]
    fn the_object_that_is_built_in_is_as_planned() {
        let check = object(&attach::object());
        assert_eq!(check.grade, Grade::Full, "{}", check.found);
    }

    #[test]
    fn what_nobody_reads_is_not_carried_about() {
        let object = attach::object();
        let file = File::parse(&*object).expect("an object");
        let names: Vec<_> = file.sections().filter_map(|it| it.name().map(str::to_owned).ok()).collect();
        assert!(names.iter().all(|name| !name.contains(".debug_")), "{names:?}");
    }

    #[test]
    fn what_is_no_such_object_is_refused() {
        let built_in = attach::object();
        let half = &built_in[..built_in.len() / 2];
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &built_in[..64], half] {
            assert_eq!(object(bytes).grade, Grade::Cannot);
        }
        // A program is renamed, so that the planned one is missing.
        let mut other = built_in.clone();
        let name = b"fx_copy_net_ns";
        for at in 0..other.len() - name.len() {
            if other[at..].starts_with(name) {
                other[at] = b'z';
            }
        }
        assert_eq!(object(&other).grade, Grade::Cannot);
        // The number of the machine in the ELF header.
        let mut foreign = built_in.clone();
        foreign[18] = 62;
        assert_eq!(object(&foreign).grade, Grade::Cannot);
    }
}
