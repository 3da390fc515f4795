//! `struct cgroup` of the hierarchy that identifies containers, and which of them are containers.

use aya_ebpf::{
    helpers::generated::bpf_get_current_cgroup_id,
    macros::map,
    maps::{LruHashMap, PerCpuArray},
};
use probe_common::{id::CgroupKey, knob::ABSENT, name::CONTAINER_PREFIXES, table};

use super::{offset, read, str_len, switch};
use crate::branchless::{choose, is_below, is_zero};

/// The container that each cgroup belongs to, by the cgroup's id, as a walk has found it. The kernel never
/// gives an id twice, and a cgroup keeps its place and its name. (Root can rename a directory of cgroup v1:
/// here it remains what it was.)
#[map]
static CONTAINERS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(table::CONTAINERS, 0);

/// Where the names of cgroups are copied to be measured. All programs share it, since nobody reads it.
#[map]
static NAME: PerCpuArray<Name> = PerCpuArray::with_max_entries(1, 0);

/// How far up a walk goes. Kubernetes under systemd is five levels deep.
const MAX_DEPTH: u32 = 16;

/// Hex digits of a container id.
const ID: usize = 64;

#[derive(Clone, Copy)]
pub(crate) struct Cgroup(u64);

/// Which container a cgroup belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Container(u64);

impl Container {
    const NONE: Self = Self(0);
    /// A cgroup that is deeper than the walk goes. Only programs in containers have a reason to nest that
    /// far, so it never counts as the host's.
    const UNKNOWN: Self = Self(u64::MAX);

    /// Returns the container of the current task, if the id of the task's cgroup is enough to find it. On
    /// cgroup v2 a helper returns that id without a read of kernel memory.
    #[inline(always)]
    pub(super) fn of_current_id() -> Option<Self> {
        if switch!(subsys) != ABSENT {
            return None;
        }
        // SAFETY: a helper without arguments.
        let id = unsafe { bpf_get_current_cgroup_id() };
        if id == switch!(root_cgroup) {
            return Some(Self::NONE);
        }
        known(id).map(Self)
    }

    #[inline(always)]
    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Returns the id of the container's own cgroup; zero outside of any.
    #[inline(always)]
    pub(crate) fn id(self) -> u64 {
        self.0
    }
}

impl Cgroup {
    /// `cgroup` is a `struct cgroup *`.
    #[inline(always)]
    pub(crate) fn at(cgroup: u64) -> Self {
        Self(cgroup)
    }

    /// `css_set` is a `struct css_set *`. On cgroup v1 the cgroup is found through a controller of the
    /// hierarchy.
    #[inline(always)]
    pub(super) fn of_css_set(css_set: u64) -> Self {
        let subsys = switch!(subsys);
        if subsys == ABSENT {
            Self(read(css_set, offset!(css_set_dfl_cgrp)))
        } else {
            let at = offset!(css_set_subsys).wrapping_add(subsys.wrapping_mul(8));
            Self(read(read(css_set, at), offset!(css_cgroup)))
        }
    }

    #[inline(always)]
    fn kernfs_node(self) -> u64 {
        read(self.0, offset!(cgroup_kn))
    }

    #[inline(always)]
    pub(crate) fn id(self) -> u64 {
        read(self.kernfs_node(), offset!(kernfs_node_id))
    }

    #[inline(always)]
    pub(crate) fn hierarchy(self) -> u32 {
        read(read(self.0, offset!(cgroup_root)), offset!(cgroup_root_hierarchy_id))
    }

    #[inline(always)]
    pub(crate) fn key(self) -> CgroupKey {
        CgroupKey::new(self.hierarchy(), self.id())
    }

    #[inline(always)]
    pub(crate) fn level(self) -> u32 {
        read(self.0, offset!(cgroup_level))
    }

    /// Returns the cgroup above it; null above the root.
    #[inline(always)]
    pub(crate) fn parent(self) -> Self {
        let css: u64 = read(self.0, offset!(cgroup_self).wrapping_add(offset!(css_parent)));
        Self(if css == 0 { 0 } else { css.wrapping_sub(offset!(cgroup_self) as u64) })
    }

    /// Returns the container that it belongs to: the topmost of all containers above it, since what runs in a
    /// container may name the directories below its own as it likes.
    #[inline(always)]
    pub(crate) fn container(self) -> Container {
        Container(container(self.0))
    }
}

/// The verifier walks an exported function once, for any argument and any result, and not again at each call.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn container(cgroup: u64) -> u64 {
    let first = Cgroup(cgroup).id();
    if cgroup == 0 || first == switch!(root_cgroup) {
        return Container::NONE.0;
    }
    if let Some(container) = known(first) {
        return container;
    }
    let found = walk(cgroup);
    // Zero is not an id: it could not be read.
    if first != 0 {
        // Without room for it, the next call walks too.
        let _ = CONTAINERS.insert(first, found, 0);
    }
    found
}

#[inline(always)]
fn known(cgroup: u64) -> Option<u64> {
    // SAFETY: a map's value stays readable while the program runs, and is only ever written as a whole.
    unsafe { CONTAINERS.get(cgroup) }.copied()
}

#[inline(always)]
fn walk(cgroup: u64) -> u64 {
    let root = switch!(root_cgroup);
    let mut cgroup = Cgroup(cgroup);
    let mut found = Container::NONE.0;
    for _ in 0..MAX_DEPTH {
        let node = cgroup.kernfs_node();
        let id: u64 = read(node, offset!(kernfs_node_id));
        if cgroup.0 == 0 || id == root {
            return found;
        }
        found = choose(is_container(read(node, offset!(kernfs_node_name))), id, found);
        cgroup = cgroup.parent();
    }
    Container::UNKNOWN.0
}

/// Returns 1 if a directory is named for a container (`probe_common::name::container_of`): 64 hex digits,
/// alone or after a runtime's prefix, possibly followed by systemd's `.scope`, or after a slice and a
/// runtime's name between colons. Anything between a prefix and an id makes it something else
/// (`crio-conmon-ID.scope`).
///
/// A function of its own: what it compares with would otherwise be on the stack of the walk from its
/// beginning to its end.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_container(name: u64) -> u64 {
    let Some(unread) = NAME.get_ptr_mut(0) else { return 0 };
    // Without a name it is minus one: a huge number, which is the length of no name.
    let len = (str_len(name, unread) - 1) as u64;
    let head: [u64; 2] = read(name, 0);
    let suffix: u64 = read(name.wrapping_add(len).wrapping_sub(SCOPE_LEN), 0);
    let scoped = is_zero((suffix ^ SCOPE) & SCOPE_MASK);
    // If the name is too short, this is a huge number, which is the length of no prefix.
    let start = len.wrapping_sub(ID as u64).wrapping_sub(scoped * SCOPE_LEN);
    let id: [u64; ID / 8] = read(name.wrapping_add(start), 0);
    let before: [u64; 3] = read(name.wrapping_add(start).wrapping_sub(BEFORE), 0);
    (is_prefix(head, start) | is_colon_form(before, start)) & is_hex(&id)
}

/// Room for a name with its NUL: a pod's slice, a runtime's name and an id are 153 bytes at most.
pub(crate) type Name = [u8; 160];

/// How many bytes before an id are compared.
const BEFORE: u64 = 24;

const SCOPE: u64 = u64::from_ne_bytes(*b".scope\0\0");
const SCOPE_MASK: u64 = u64::from_ne_bytes(*b"\xff\xff\xff\xff\xff\xff\0\0");
const SCOPE_LEN: u64 = 6;

/// Returns 1 if the `len` bytes before an id are nothing or one of the runtimes' prefixes.
#[inline(always)]
fn is_prefix(head: [u64; 2], len: u64) -> u64 {
    let mut known = is_zero(len);
    let mut i = 0;
    while i < PREFIXES.len() {
        let prefix = &PREFIXES[i];
        known |= is_zero(
            len ^ prefix.len
                | (head[0] ^ prefix.text[0]) & prefix.mask[0]
                | (head[1] ^ prefix.text[1]) & prefix.mask[1],
        );
        i += 1;
    }
    known
}

/// Returns 1 if what is before an id ends like `….slice:cri-containerd:`. `before` has its last 24 bytes,
/// which begin before the name if that is shorter: then they are whatever is there.
#[inline(always)]
fn is_colon_form(before: [u64; 3], len: u64) -> u64 {
    let mut known = 0;
    let mut i = 0;
    while i < COLONS.len() {
        let end = &COLONS[i];
        known |= is_below(end.len, len)
            & is_zero(
                (before[0] ^ end.text[0]) & end.mask[0]
                    | (before[1] ^ end.text[1]) & end.mask[1]
                    | (before[2] ^ end.text[2]) & end.mask[2],
            );
        i += 1;
    }
    known
}

/// The end of the part before an id, aligned to its last byte.
struct End {
    len: u64,
    text: [u64; 3],
    mask: [u64; 3],
}

impl End {
    /// Makes `.slice:RUNTIME:` from a prefix that has a hyphen after the runtime's name.
    const fn new(prefix: &str) -> Self {
        let runtime = prefix.as_bytes();
        let len = SLICE.len() + 1 + runtime.len();
        assert!(len <= BEFORE as usize, "an end is compared as three words");
        let (mut bytes, mut mask) = ([[0; 8]; 3], [[0; 8]; 3]);
        let mut i = 0;
        while i < len {
            let at = BEFORE as usize - len + i;
            bytes[at / 8][at % 8] = if i < SLICE.len() {
                SLICE[i]
            } else if i == SLICE.len() || i == len - 1 {
                b':'
            } else {
                runtime[i - SLICE.len() - 1]
            };
            mask[at / 8][at % 8] = 0xff;
            i += 1;
        }
        Self { len: len as u64, text: words(bytes), mask: words(mask) }
    }
}

const SLICE: &[u8] = b".slice";

const fn words(bytes: [[u8; 8]; 3]) -> [u64; 3] {
    let mut words = [0; 3];
    let mut i = 0;
    while i < words.len() {
        words[i] = u64::from_ne_bytes(bytes[i]);
        i += 1;
    }
    words
}

const COLONS: [End; CONTAINER_PREFIXES.len()] = {
    let mut ends = [const { End::new("") }; CONTAINER_PREFIXES.len()];
    let mut i = 0;
    while i < CONTAINER_PREFIXES.len() {
        ends[i] = End::new(CONTAINER_PREFIXES[i]);
        i += 1;
    }
    ends
};

struct Prefix {
    len: u64,
    text: [u64; 2],
    mask: [u64; 2],
}

impl Prefix {
    const fn new(text: &str) -> Self {
        let from = text.as_bytes();
        assert!(from.len() <= 16, "a prefix is compared as two words");
        let (mut bytes, mut mask) = ([[0; 8]; 2], [[0; 8]; 2]);
        let mut i = 0;
        while i < from.len() {
            bytes[i / 8][i % 8] = from[i];
            mask[i / 8][i % 8] = 0xff;
            i += 1;
        }
        Self {
            len: from.len() as u64,
            text: [u64::from_ne_bytes(bytes[0]), u64::from_ne_bytes(bytes[1])],
            mask: [u64::from_ne_bytes(mask[0]), u64::from_ne_bytes(mask[1])],
        }
    }
}

const PREFIXES: [Prefix; CONTAINER_PREFIXES.len()] = {
    let mut prefixes = [const { Prefix::new("") }; CONTAINER_PREFIXES.len()];
    let mut i = 0;
    while i < CONTAINER_PREFIXES.len() {
        prefixes[i] = Prefix::new(CONTAINER_PREFIXES[i]);
        i += 1;
    }
    prefixes
};

/// Returns 1 if every byte is one of `0-9a-f`. Eight at a time: a byte below 0x80 plus `0x80 - x` has its
/// high bit set exactly if it is at least `x`, and no carry reaches the next byte.
#[inline(always)]
fn is_hex(words: &[u64; ID / 8]) -> u64 {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const fn at_least(word: u64, byte: u8) -> u64 {
        word.wrapping_add(u64::from_ne_bytes([0x80 - byte; 8]))
    }
    let mut wrong = 0;
    let mut i = 0;
    while i < words.len() {
        let word = words[i];
        let digit = at_least(word, b'0') & !at_least(word, b'9' + 1);
        let letter = at_least(word, b'a') & !at_least(word, b'f' + 1);
        wrong |= (word | !(digit | letter)) & HIGH;
        i += 1;
    }
    is_zero(wrong)
}
