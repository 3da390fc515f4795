//! Tests with hand-made BTF, the running kernel's BTF, and invalid bytes.

use aya::Endianness;
use proptest::prelude::*;

use super::{Btf, BtfError, kind};

/// Builds a BTF file type by type; ids count from 1.
struct Maker {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Maker {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).expect("a short file");
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    fn one(mut self, name: &str, kind: u32, n: u32, size_or_type: u32) -> Self {
        let name = self.name(name);
        self.words(&[name, kind << 24 | n, size_or_type]);
        self
    }

    /// Adds the members of a struct, union, enum or prototype.
    fn with(mut self, members: &[(&str, &[u32])]) -> Self {
        for (name, rest) in members {
            let name = self.name(name);
            self.words(&[name]);
            self.words(rest);
        }
        self
    }

    fn bytes(self) -> Vec<u8> {
        let [types, strings] =
            [self.types.len(), self.strings.len()].map(|len| u32::try_from(len).expect("a small sample"));
        let mut bytes = Vec::from(super::MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        bytes.extend([24, 0, types, types, strings].iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}

fn sample() -> Vec<u8> {
    Maker::new()
        .one("int", 1, 0, 4) // 1
        .with(&[("", &[])]) // its encoding
        .one("inner", 4, 2, 16) // 2
        .with(&[("skipped", &[1, 0]), ("wanted", &[1, 64])])
        .one("", 5, 1, 8) // 3: anonymous union
        .with(&[("hidden", &[1, 32])])
        .one("inner_t", 8, 0, 2) // 4: typedef
        .one("outer", 4, 3, 40) // 5
        .with(&[("first", &[1, 0]), ("", &[3, 64]), ("ns", &[4, 128])])
        .one("", 2, 0, 5) // 6: pointer to outer
        .one("", 13, 3, 0) // 7: prototype
        .with(&[("", &[6]), ("victim", &[6]), ("pid", &[1])])
        .one("mark", 12, 1, 7) // 8: function
        .one("", 2, 0, 7) // 9: pointer to the prototype
        .one("btf_trace_mark", 8, 0, 9) // 10
        .one("ids", 6, 2, 4) // 11
        .with(&[("zero_id", &[0]), ("memory_id", &[4])])
        .bytes()
}

#[test]
fn members_are_found_through_embedded_and_anonymous_structs() {
    let btf = Btf::parse(sample()).expect("well-formed");
    assert_eq!(btf.member("outer", "first"), Some(0));
    assert_eq!(btf.member("outer", "hidden"), Some(12));
    assert_eq!(btf.member("outer", "ns.wanted"), Some(24));
    assert_eq!(btf.member("outer", "ns"), Some(16));
    assert_eq!(btf.member("outer", "ns.absent"), None);
    assert_eq!(btf.member("outer", "first.wanted"), None);
    assert_eq!(btf.member("absent", "first"), None);
    assert_eq!(btf.size("inner"), Some(16));
}

#[test]
fn functions_enums_and_tracepoints_are_found() {
    let btf = Btf::parse(sample()).expect("well-formed");
    assert_eq!(btf.function("mark"), Some(3));
    assert_eq!(btf.function("outer"), None);
    assert_eq!(btf.enumerator("ids", "memory_id"), Some(4));
    assert_eq!(btf.enumerator("ids", "other_id"), None);
    assert_eq!(btf.tracepoint_passes_pointer("mark", 0), Some(true));
    assert_eq!(btf.tracepoint_passes_pointer("mark", 1), Some(false));
    assert_eq!(btf.tracepoint_passes_pointer("mark", 2), None);
}

/// aya passes to the kernel the id of the function that a program is attached to.
#[test]
fn functions_alone_keep_their_ids_and_can_be_read_by_aya() {
    let id = |btf: &Btf, name| btf.find(kind::FUNC, name);
    let btf = Btf::parse(sample()).expect("well-formed");
    let alone = btf.functions_alone(["mark", "absent"]);
    assert!(aya::Btf::parse(&alone, Endianness::default()).is_ok());
    let alone = Btf::parse(alone).expect("well-formed");
    assert_eq!((id(&btf, "mark"), id(&alone, "mark")), (Some(8), Some(8)));
    assert_eq!((id(&alone, "absent"), alone.size("outer")), (None, None));
    assert!(aya::Btf::parse(&btf.functions_alone([]), Endianness::default()).is_ok());
}

#[test]
fn what_is_no_btf_is_told() {
    assert_eq!(Btf::parse(Vec::new()).err(), Some(BtfError::Short));
    assert_eq!(Btf::parse(b"\x7fELF and so on, longer than a header".to_vec()).err(), Some(BtfError::Magic));
    let mut cut = sample();
    cut.truncate(60);
    assert_eq!(Btf::parse(cut).err(), Some(BtfError::Short));
    let newer = Maker::new().one("new", 31, 0, 0).bytes();
    assert_eq!(Btf::parse(newer).err(), Some(BtfError::UnknownKind(31)));
}

#[test]
fn a_type_made_of_itself_ends() {
    let typedef =
        Btf::parse(Maker::new().one("loop", 8, 0, 1).one("s", 4, 1, 8).with(&[("a", &[1, 0])]).bytes());
    assert_eq!(typedef.expect("well-formed").member("s", "a.b"), None);
    let nested = Maker::new().one("s", 4, 2, 8).with(&[("", &[1, 0]), ("", &[1, 0])]).bytes();
    assert_eq!(Btf::parse(nested).expect("well-formed").member("s", "a"), None);
}

/// Calls every reader on these bytes.
fn ask_everything(btf: &Btf) {
    for name in ["outer", "inner", "ids", "mark", "s"] {
        let _ = btf.size(name);
        let _ = btf.function(name);
        let _ = btf.member(name, "ns.wanted");
        let _ = btf.member(name, "hidden");
        let _ = btf.enumerator(name, "memory_id");
        let _ = btf.tracepoint_passes_pointer(name, 0);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut all = sample();
        all.truncate(24);
        all.extend(bytes);
        if let Ok(btf) = Btf::parse(all) {
            ask_everything(&btf);
        }
    }

    #[test]
    fn no_damage_makes_it_panic(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = sample();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }
}
