//! The address of a kernel function, or why it is hidden.
//!
//! `/proc/kallsyms` shows zeros to processes that may not know addresses (`kallsyms_show_value`). With
//! `kernel.kptr_restrict` at 2 that is every process. Below 2 it is every process without `CAP_SYSLOG`,
//! unless profiling is open to all.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader},
};

use caps::Capability;

use super::reason::Why;
use crate::source::node::missing_right::{MissingRight, Privileges};

const SYMBOLS: &str = "/proc/kallsyms";

#[derive(Debug)]
pub(super) enum Symbol {
    At(u64),
    /// No symbol has an address other than 0.
    Hidden,
    Absent,
    Unreadable(io::Error),
}

impl Symbol {
    pub(super) fn find(name: &str) -> Self {
        File::open(SYMBOLS)
            .and_then(|file| Self::of(BufReader::new(file), name))
            .unwrap_or_else(Self::Unreadable)
    }

    fn of(symbols: impl BufRead, name: &str) -> io::Result<Self> {
        Ok(match address_of(symbols, name.as_bytes())? {
            Some(0) => Self::Hidden,
            Some(address) => Self::At(address),
            None => Self::Absent,
        })
    }

    /// Returns the address; 0 if it is unknown.
    pub(super) fn address(&self) -> u64 {
        match self {
            Self::At(address) => *address,
            Self::Hidden | Self::Absent | Self::Unreadable(_) => 0,
        }
    }

    /// Returns why the address is unknown; `restrict` is `kernel.kptr_restrict`.
    pub(super) fn why_not(&self, name: &str, here: Privileges, restrict: Option<&str>) -> Option<Why> {
        let (text, lack) = match self {
            Self::At(_) => return None,
            Self::Hidden if restrict == Some("2") => (
                format!("{SYMBOLS} hides the address of {name} from everybody: kernel.kptr_restrict is 2"),
                Some(MissingRight::HiddenSymbols),
            ),
            Self::Hidden if !here.holds(Capability::CAP_SYSLOG) => (
                format!("{SYMBOLS} hides the address of {name}: CAP_SYSLOG is not held"),
                Some(MissingRight::Symbols),
            ),
            Self::Hidden => {
                let restrict = restrict.unwrap_or("not known");
                (format!("{SYMBOLS} hides the address of {name}: kernel.kptr_restrict is {restrict}"), None)
            }
            Self::Absent => (format!("{SYMBOLS} does not have {name}"), None),
            Self::Unreadable(error) => (format!("{SYMBOLS} cannot be read: {error}"), None),
        };
        Some(Why { lacks: lack.into_iter().collect::<BTreeSet<_>>(), ..text.into() })
    }
}

/// Parses `ffffffff81e523c0 t cleanup_net`; the name of a module may follow. The file has several megabytes,
/// so it is read line by line, and only as far as the symbol.
fn address_of(mut symbols: impl BufRead, name: &[u8]) -> io::Result<Option<u64>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if symbols.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let mut fields = line.split(u8::is_ascii_whitespace);
        let address = fields.next().and_then(|text| std::str::from_utf8(text).ok());
        if fields.nth(1) == Some(name) {
            return Ok(address.and_then(|text| u64::from_str_radix(text, 16).ok()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MissingRight, Privileges, Symbol, address_of};

    fn of(symbols: &[u8]) -> Symbol {
        Symbol::of(symbols, "cleanup_net").expect("readable")
    }

    #[test]
    fn a_symbol_is_found_by_its_whole_name() {
        let symbols = b"ffffffff81e523b0 t cleanup_net_x\nffffffff81e523c0 t cleanup_net\t[net]\n";
        let address_of = |name: &str| address_of(&symbols[..], name.as_bytes()).expect("readable");
        assert_eq!(address_of("cleanup_net"), Some(0xffff_ffff_81e5_23c0));
        assert_eq!(address_of("cleanup"), None);
    }

    #[test]
    fn zeros_are_put_down_to_what_hides_the_address() {
        let hidden = of(b"0000000000000000 t cleanup_net\n");
        let why = |held: &[caps::Capability], restrict| {
            let why =
                hidden.why_not("cleanup_net", Privileges::with(held), Some(restrict)).expect("it is hidden");
            (why.text, why.lacks.into_iter().collect::<Vec<_>>())
        };
        // Without the capability zeros are shown even if nothing is restricted.
        let (text, lacks) = why(&[], "0");
        assert!(text.ends_with("CAP_SYSLOG is not held") && !text.contains("kptr_restrict"), "{text}");
        assert_eq!(lacks, [MissingRight::Symbols]);
        let (text, lacks) = why(&[caps::Capability::CAP_SYSLOG], "2");
        assert!(text.ends_with("kernel.kptr_restrict is 2"), "{text}");
        assert_eq!(lacks, [MissingRight::HiddenSymbols]);
        let (text, lacks) = why(&[caps::Capability::CAP_SYSLOG], "1");
        assert!(text.ends_with("kernel.kptr_restrict is 1") && lacks.is_empty(), "{text}");
        let there = of(b"ffffffff81e523c0 t cleanup_net\n");
        assert!(there.why_not("cleanup_net", Privileges::with(&[]), None).is_none());
        let absent = of(b"").why_not("cleanup_net", Privileges::with(&[]), None);
        assert!(absent.is_some_and(|why| why.lacks.is_empty()));
    }
}
