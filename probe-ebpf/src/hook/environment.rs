//! Finds a call's variables (`probe_common::event::cni`) in an environment, wherever they are in it: callers
//! write it in random order. Nothing else of an environment is copied, and nothing of it leaves the kernel
//! from here.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated::bpf_probe_read_user_str, macros::map, maps::PerCpuArray};
use probe_common::event::cni::{COMMAND, NAMES, VARIABLES};

use crate::{
    branchless::{choose, is_below, is_zero},
    kernel::{offset, read},
};

#[map]
static ENVIRONMENT: PerCpuArray<Environment> = PerCpuArray::with_max_entries(1, 0);

/// How far the search goes: strings, counting a longer one for each `STRING` bytes of it, and bytes.
const STEPS: u64 = 1024;
const BYTES: u64 = 128 << 10;
const STRING: usize = 2048;

/// How many variables may begin with `CNI_` or `TRAC`, a power of two; if there are more, later ones take the
/// places of the first.
const CANDIDATES: usize = 32;

/// The variables, and a place for strings that are none of them.
const PLACES: usize = 16;
const _: () = assert!(VARIABLES < PLACES);

/// What a search found. It is in a map's value and not in registers: the verifier need not follow what it
/// does not know.
#[repr(C)]
pub(crate) struct Environment {
    /// Bytes in all, and how many of them were searched.
    pub(super) total: u64,
    pub(super) scanned: u64,
    /// Bit i: variable i was found. Bits above the variables may be set too.
    present: u64,
    /// The first eight bytes of `CNI_COMMAND`.
    pub(super) command: u64,
    /// Where in the process each value is, and how long it is.
    address: [u64; PLACES],
    len: [u64; PLACES],
    /// 1 if the next string begins inside a longer one of the environment.
    inside: u64,
    /// The strings that begin as a variable does.
    candidates: u64,
    candidate_at: [u64; CANDIDATES],
    candidate_len: [u64; CANDIDATES],
    /// The current string; its last bytes may be an older one's.
    string: [u64; STRING / 8],
}

impl Environment {
    /// Returns this CPU's, which belongs to the program that runs.
    #[inline(always)]
    pub(super) fn get() -> Option<&'static mut Self> {
        let environment = ENVIRONMENT.get_ptr_mut(0)?;
        // SAFETY: this CPU's value, which only one program uses: see the map.
        Some(unsafe { &mut *environment })
    }

    /// Searches the environment of a process; `mm` is a `struct mm_struct *`.
    #[inline(always)]
    pub(super) fn search(mm: u64) {
        env_scan(mm);
        env_recognize();
    }

    /// Returns 1 if a variable was found.
    #[inline(always)]
    pub(super) fn has(&self, variable: usize) -> u64 {
        self.present >> variable & 1
    }

    #[inline(always)]
    pub(super) fn present(&self) -> u64 {
        self.present & const { (1 << VARIABLES) - 1 }
    }

    /// Returns where a variable's value is and how long it is; zeroes if it was not found.
    #[inline(always)]
    pub(super) fn value(&self, variable: usize) -> (u64, u64) {
        let has = self.has(variable);
        (choose(has, self.address[variable], 0), choose(has, self.len[variable], 0))
    }
}

/// Goes through the strings and notes those that begin as a variable does.
///
/// The verifier walks every step, and older ones (5.10) soon forget which states they have seen: so each step
/// has one way out and one way on.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn env_scan(mm: u64) -> u64 {
    let Some(env) = Environment::get() else { return 0 };
    let start: u64 = read(mm, offset!(mm_env_start));
    let total = read::<u64>(mm, offset!(mm_env_end)).wrapping_sub(start);
    env.total = total;
    env.scanned = 0;
    env.inside = 0;
    env.candidates = 0;
    let bound = choose(is_below(total, BYTES), total, BYTES);
    for _ in 0..STEPS {
        let done = env.scanned;
        let at = start.wrapping_add(done);
        let len = read_string(&mut env.string, at);
        // The string is there, and begins within the bound.
        let more = is_below(done, bound) & is_below(0, len);
        if more == 0 {
            break;
        }
        // The next candidate overwrites this one unless the counter goes on.
        let candidate = (env.candidates & const { CANDIDATES as u64 - 1 }) as usize;
        env.candidate_at[candidate] = at;
        env.candidate_len[candidate] = len;
        // SAFETY: the string's first bytes. They are read as one word of 32 bits, without masking.
        let head = u64::from(unsafe { env.string.as_ptr().cast::<u32>().read_volatile() });
        // Both factors are below 2^32, so that only a zero makes the product zero.
        env.candidates += is_zero((head ^ CNI).wrapping_mul(head ^ TRACE) | env.inside);
        // A string that fills the buffer was cut, and its last byte is a NUL that is not its own.
        env.inside = len / STRING as u64;
        env.scanned = done.wrapping_add(len).wrapping_sub(env.inside);
    }
    env.scanned = choose(is_below(total, env.scanned), total, env.scanned);
    0
}

const CNI: u64 = u32::from_ne_bytes(*b"CNI_") as u64;
const TRACE: u64 = u32::from_ne_bytes(*b"TRAC") as u64;

/// Compares the candidates with the variables' names.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn env_recognize() -> u64 {
    let Some(env) = Environment::get() else { return 0 };
    env.present = 0;
    env.command = 0;
    for i in 0..CANDIDATES {
        if i as u64 >= env.candidates {
            break;
        }
        let at = env.candidate_at[i];
        read_string(&mut env.string, at);
        recognize(at, env.candidate_len[i], env);
    }
    0
}

/// Notes where a variable's value is. If two have the same name the first counts, as for `getenv`.
#[inline(always)]
fn recognize(at: u64, len: u64, env: &mut Environment) {
    let mut place = VARIABLES as u64;
    let mut name_len = 0;
    let mut i = 0;
    while i < VARIABLES {
        let name = &VARIABLE_NAMES[i];
        let differs =
            env.string[0] & name.mask[0] ^ name.text[0] | env.string[1] & name.mask[1] ^ name.text[1];
        let is_this = is_zero(differs | env.has(i));
        place = choose(is_this, i as u64, place);
        name_len = choose(is_this, name.len, name_len);
        i += 1;
    }
    let slot = (place & const { PLACES as u64 - 1 }) as usize;
    env.address[slot] = at.wrapping_add(name_len);
    // Without the NUL.
    env.len[slot] = len.wrapping_sub(name_len).wrapping_sub(1);
    env.present |= 1 << (place & 63);
    // "CNI_COMM", "AND=" and the value.
    let command = env.string[1] >> 32 | env.string[2] << 32;
    env.command = choose(is_zero(place ^ COMMAND as u64), command, env.command);
}

/// Copies a string of the current process, as far as there is room for it. Returns how many bytes that were,
/// with the NUL; zero or above 2^63 if it is not there.
#[inline(always)]
fn read_string(to: &mut [u64; STRING / 8], from: u64) -> u64 {
    // SAFETY: the helper writes at most the buffer's size and takes any address to read from.
    let len = unsafe {
        bpf_probe_read_user_str(
            to.as_mut_ptr().cast::<c_void>(),
            const { STRING as u32 },
            from as *const c_void,
        )
    };
    len as u64
}

/// A variable's name and the `=` after it, as two words.
struct Name {
    len: u64,
    text: [u64; 2],
    mask: [u64; 2],
}

impl Name {
    const fn new(name: &str) -> Self {
        let name = name.as_bytes();
        let (mut text, mut mask) = ([[0; 8]; 2], [[0; 8]; 2]);
        let len = name.len() + 1;
        assert!(len <= 16, "a name is compared as two words");
        let mut i = 0;
        while i < len {
            text[i / 8][i % 8] = if i < name.len() { name[i] } else { b'=' };
            mask[i / 8][i % 8] = 0xff;
            i += 1;
        }
        Self {
            len: len as u64,
            text: [u64::from_ne_bytes(text[0]), u64::from_ne_bytes(text[1])],
            mask: [u64::from_ne_bytes(mask[0]), u64::from_ne_bytes(mask[1])],
        }
    }
}

const VARIABLE_NAMES: [Name; VARIABLES] = {
    let mut names = [const { Name::new("") }; VARIABLES];
    let mut i = 0;
    while i < VARIABLES {
        names[i] = Name::new(NAMES[i].0);
        i += 1;
    }
    names
};
