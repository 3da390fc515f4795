//! Reads the running kernel's description of its types (BTF), as far as the hooks need it: the offsets of
//! struct members, the functions, and the values of enums.
//!
//! One pass records the position of each type and indexes the named ones. Nothing is copied from the file,
//! which has several megabytes. aya, which must know the ids of functions, gets a file with little else in it
//! ([`Btf::functions_alone`]).
//!
//! **Invariant:** no input leads to a panic or an endless loop, although it comes from the kernel.

use std::collections::BTreeMap;

/// The kernel's BTF file.
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";

/// A parsed BTF file.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// The position of the string section in `bytes`.
    strings: Section,
    /// The position of each type in `bytes`, by id. The first type, `void`, has none.
    types: Vec<u32>,
    /// The named types: the hash of kind and name, and the id; in order.
    index: Vec<(u32, u32)>,
}

/// Why a file is not valid BTF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    #[error("it does not begin as BTF of this machine's byte order does")]
    Magic,
    #[error("it is cut short")]
    Short,
    #[error("it holds a type of unknown kind {0}")]
    UnknownKind(u32),
}

#[derive(Clone, Copy)]
struct Section {
    start: usize,
    end: usize,
}

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// The size of a type's name, info, and size or type.
const TYPE: usize = 12;
/// The deepest nesting of anonymous structs or typedefs that is followed. No kernel has more.
const MAX_DEPTH: u32 = 32;
/// The most members of a struct, including those of its anonymous structs, that are searched. No kernel has
/// more.
const MAX_MEMBERS: u32 = 10_000;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// The fixed part of a type.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// How many members, values or parameters follow.
    n: usize,
    /// The members may have bitfields, so an offset shares its word with a size.
    packed: bool,
    /// The size in bytes, or the id of the underlying type.
    size_or_type: u32,
    /// The position of the variable part.
    tail: usize,
}

impl Btf {
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let magic = bytes.first_chunk().ok_or(BtfError::Short)?;
        if u16::from_ne_bytes(*magic) != MAGIC {
            return Err(BtfError::Magic);
        }
        if bytes.len() < HEADER || u32::try_from(bytes.len()).is_err() {
            return Err(BtfError::Short);
        }
        let header = word(&bytes, 4).ok_or(BtfError::Short)? as usize;
        let types = section(&bytes, header, 8).ok_or(BtfError::Short)?;
        let strings = section(&bytes, header, 16).ok_or(BtfError::Short)?;

        let mut btf = Self { bytes, strings, types: vec![0], index: Vec::new() };
        let mut at = types.start;
        while at < types.end {
            let this = btf.type_at(at).ok_or(BtfError::Short)?;
            let end = this.tail + tail_len(this).ok_or(BtfError::UnknownKind(this.kind))?;
            if end > types.end {
                return Err(BtfError::Short);
            }
            let id = u32::try_from(btf.types.len()).map_err(|_too_many| BtfError::Short)?;
            btf.types.push(u32::try_from(at).map_err(|_too_long| BtfError::Short)?);
            if this.name != 0 && is_looked_up(this.kind) {
                let hash = hash(this.kind, btf.string(this.name));
                btf.index.push((hash, id));
            }
            at = end;
        }
        btf.index.sort_unstable();
        Ok(btf)
    }

    /// Returns the byte offset of a member in a struct. `path` may lead through embedded structs: `ns.inum`.
    #[must_use]
    pub(crate) fn member(&self, name: &str, path: &str) -> Option<u32> {
        let mut id = self.find(kind::STRUCT, name)?;
        let mut offset = 0_u32;
        for step in path.split('.') {
            let mut left = MAX_MEMBERS;
            let (at, of) = self.member_of(self.resolve(id)?, step, MAX_DEPTH, &mut left)?;
            offset = offset.checked_add(at)?;
            id = of;
        }
        Some(offset)
    }

    /// Returns the size of a struct in bytes.
    #[must_use]
    pub(crate) fn size(&self, name: &str) -> Option<u32> {
        Some(self.type_of(self.find(kind::STRUCT, name)?)?.size_or_type)
    }

    /// Returns the number of arguments of a function; `None` if the kernel does not have it.
    #[must_use]
    pub(crate) fn function(&self, name: &str) -> Option<usize> {
        let prototype = self.type_of(self.type_of(self.find(kind::FUNC, name)?)?.size_or_type)?;
        (prototype.kind == kind::FUNC_PROTO).then_some(prototype.n)
    }

    /// Returns the value of a name in an enum.
    #[must_use]
    pub(crate) fn enumerator(&self, name: &str, value: &str) -> Option<u32> {
        let this = self.type_of(self.find(kind::ENUM, name)?)?;
        (0..this.n).map(|i| this.tail + 8 * i).find_map(|at| {
            let name = word(&self.bytes, at)?;
            (self.string(name) == value.as_bytes()).then(|| word(&self.bytes, at + 4))?
        })
    }

    /// Returns whether the n-th argument of a tracepoint is a pointer. `btf_trace_NAME` has the prototype;
    /// its first argument is the subscriber's data.
    #[must_use]
    pub(crate) fn tracepoint_passes_pointer(&self, name: &str, n: usize) -> Option<bool> {
        let of = self.find(kind::TYPEDEF, &format!("btf_trace_{name}"))?;
        let pointer = self.type_of(self.resolve(of)?)?;
        let prototype = self.type_of(pointer.size_or_type)?;
        if pointer.kind != kind::PTR || prototype.kind != kind::FUNC_PROTO || n + 1 >= prototype.n {
            return None;
        }
        let argument = word(&self.bytes, prototype.tail + 8 * (n + 1) + 4)?;
        Some(self.type_of(self.resolve(argument)?)?.kind == kind::PTR)
    }

    /// Returns the offset and type of a member. Members of anonymous structs and unions count as the struct's
    /// own.
    fn member_of(&self, id: u32, name: &str, depth: u32, left: &mut u32) -> Option<(u32, u32)> {
        let this = self.type_of(id)?;
        if !matches!(this.kind, kind::STRUCT | kind::UNION) {
            return None;
        }
        (0..this.n).map(|i| this.tail + 12 * i).find_map(|at| {
            *left = left.checked_sub(1)?;
            let own = word(&self.bytes, at)?;
            let of = word(&self.bytes, at + 4)?;
            let bits = word(&self.bytes, at + 8)?;
            let offset = if this.packed { bits & 0xff_ffff } else { bits } / 8;
            if own != 0 {
                return (self.string(own) == name.as_bytes()).then_some((offset, of));
            }
            let (inner, of) = self.member_of(self.resolve(of)?, name, depth.checked_sub(1)?, left)?;
            Some((offset.checked_add(inner)?, of))
        })
    }

    /// Returns the type that typedefs and qualifiers lead to.
    fn resolve(&self, mut id: u32) -> Option<u32> {
        for _ in 0..MAX_DEPTH {
            let this = self.type_of(id)?;
            match this.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = this.size_or_type;
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn find(&self, kind: u32, name: &str) -> Option<u32> {
        let hash = hash(kind, name.as_bytes());
        let first = self.index.partition_point(|(other, _)| *other < hash);
        let same = self.index.get(first..)?.iter().take_while(|(other, _)| *other == hash);
        same.map(|(_, id)| *id).find(|id| {
            self.type_of(*id)
                .is_some_and(|found| found.kind == kind && self.string(found.name) == name.as_bytes())
        })
    }

    /// Makes a file in which these functions have the same ids as in this one. All other types in it are
    /// nameless and empty, so a reader that copies what it reads needs little memory.
    #[must_use]
    pub(crate) fn functions_alone<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        let ids = names.into_iter().filter_map(|name| Some((self.find(kind::FUNC, name)?, name)));
        let ids: BTreeMap<u32, &str> = ids.collect();
        let last = ids.last_key_value().map_or(0, |(id, _)| *id);
        let mut types: Vec<u8> = Vec::with_capacity(last as usize * TYPE);
        let mut strings = vec![0];
        for id in 1..=last {
            let (at, kind) = ids.get(&id).map_or((0, kind::FWD), |name| {
                let at = strings.len();
                strings.extend(name.bytes().chain([0]));
                (at, kind::FUNC)
            });
            types.extend([as_word(at), kind << 24, 0].map(u32::to_ne_bytes).as_flattened());
        }
        let mut file = Vec::with_capacity(HEADER + types.len() + strings.len());
        file.extend(MAGIC.to_ne_bytes());
        file.extend([1, 0]);
        let words = [HEADER, 0, types.len(), types.len(), strings.len()].map(as_word);
        file.extend(words.map(u32::to_ne_bytes).as_flattened());
        file.extend(types);
        file.extend(strings);
        file
    }

    fn type_of(&self, id: u32) -> Option<Type> {
        if id == 0 {
            return None;
        }
        self.type_at(*self.types.get(id as usize)? as usize)
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let info = word(&self.bytes, at + 4)?;
        Some(Type {
            name: word(&self.bytes, at)?,
            kind: info >> 24 & 0x1f,
            n: (info & 0xffff) as usize,
            packed: info >> 31 != 0,
            size_or_type: word(&self.bytes, at + 8)?,
            tail: at + TYPE,
        })
    }

    /// Returns the string at an offset of the string section; empty if there is none.
    fn string(&self, offset: u32) -> &[u8] {
        let from = self.strings.start.saturating_add(offset as usize);
        let rest = self.bytes.get(from..self.strings.end).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// Returns the length of a type's variable part; `None` for kinds that this program does not know.
fn tail_len(this: Type) -> Option<usize> {
    Some(match this.kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * this.n,
        kind::ENUM | kind::FUNC_PROTO => 8 * this.n,
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        _ => return None,
    })
}

/// Returns the section whose offset and length are at this position; the offset counts from the end of the
/// header.
fn section(bytes: &[u8], header: usize, at: usize) -> Option<Section> {
    let start = header.checked_add(word(bytes, at)? as usize)?;
    let end = start.checked_add(word(bytes, at + 4)? as usize)?;
    (end <= bytes.len()).then_some(Section { start, end })
}

fn is_looked_up(kind: u32) -> bool {
    matches!(kind, kind::STRUCT | kind::ENUM | kind::FUNC | kind::TYPEDEF)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Converts a length. A file is shorter than 4 GiB.
fn as_word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Hashes a name with FNV-1a: the kernel has a hundred thousand names, so a fast hash is enough.
fn hash(kind: u32, name: &[u8]) -> u32 {
    const PRIME: u32 = 0x0100_0193;
    let seed = 0x811c_9dc5 ^ kind;
    name.iter().fold(seed.wrapping_mul(PRIME), |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests;
