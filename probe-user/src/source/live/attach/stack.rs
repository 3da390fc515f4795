//! Checks the stack use of the object's programs as the verifier of Linux 5.10 to 6.12 does: it adds up the
//! frames of each chain of calls. Newer kernels check each function alone. So a program that uses more stack
//! would load only on a new kernel.

use std::collections::{BTreeMap, BTreeSet};

use object::{
    File, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex, SymbolKind,
};

use super::object;
use crate::source::live::plan::HOOKS;

/// `MAX_BPF_STACK` and `MAX_CALL_FRAMES`.
const STACK: u32 = 512;
const FRAMES: usize = 8;
/// Each frame is rounded up to a multiple of this.
const ROUND: u32 = 32;

const INSTRUCTION: usize = 8;
const CALL: u8 = 0x85;
const ADD_IMMEDIATE: u8 = 0x07;
const MOVE_REGISTER: u8 = 0xbf;
const LOAD_ADDRESS: u8 = 0x18;
/// The source register of a call to a function of the object, and of a load of such a function's address.
const PSEUDO_CALL: usize = 1;
const PSEUDO_FUNCTION: usize = 4;
/// Instruction classes: the lowest three bits.
const LOAD: u8 = 1;
const STORE_IMMEDIATE: u8 = 2;
const STORE: u8 = 3;
const CLASSES: u8 = 7;
const FRAME_POINTER: usize = 10;

/// The section and offset at which a function begins.
pub(super) type Start = (usize, u64);

pub(super) struct Function {
    pub(super) name: String,
    pub(super) instructions: usize,
    /// The bytes of stack below its frame pointer.
    stack: u32,
    pub(super) calls: BTreeSet<Start>,
}

impl Function {
    fn frame(&self) -> u32 {
        self.stack.max(1).next_multiple_of(ROUND)
    }
}

pub(super) type Functions = BTreeMap<Start, Function>;

/// Returns all functions of an object.
pub(super) fn functions(bytes: &[u8]) -> Result<Functions, String> {
    let file = File::parse(bytes).map_err(|error| format!("not an object file: {error}"))?;
    let mut functions = Functions::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0) {
        let name = symbol.name().map_err(|error| format!("a function without a name: {error}"))?;
        let index = symbol.section_index().ok_or_else(|| format!("{name} is in no section"))?;
        let function = function(&file, name, index, symbol.address(), symbol.size())
            .map_err(|why| format!("{name}: {why}"))?;
        functions.insert((index.0, symbol.address()), function);
    }
    for function in functions.values() {
        if let Some(call) = function.calls.iter().find(|call| !functions.contains_key(call)) {
            return Err(format!("{} calls what is no function, at {call:?}", function.name));
        }
    }
    Ok(functions)
}

fn function(
    file: &File<'_>,
    name: &str,
    index: SectionIndex,
    start: u64,
    size: u64,
) -> Result<Function, String> {
    let section = file.section_by_index(index).map_err(|error| error.to_string())?;
    let code = section.data_range(start, size).map_err(|error| error.to_string())?;
    let code = code.ok_or("its code is not in its section")?;
    let targets: BTreeMap<u64, RelocationTarget> =
        section.relocations().map(|(at, relocation)| (at, relocation.target())).collect();
    let mut stack = 0;
    let mut calls = BTreeSet::new();
    // The offset of each register from the frame pointer, if it is known.
    let mut relative = [None; 16];
    relative[FRAME_POINTER] = Some(0_i64);
    for (n, bytes) in code.chunks_exact(INSTRUCTION).enumerate() {
        let at = start + (n * INSTRUCTION) as u64;
        let one = Instruction::of(bytes.try_into().map_err(|_short| "half an instruction")?);
        let base = match one.code & CLASSES {
            LOAD => relative[one.source],
            STORE_IMMEDIATE | STORE => relative[one.target],
            _ => None,
        };
        let mut reached = base.map(|base| base + i64::from(one.offset));
        match one.code {
            MOVE_REGISTER => relative[one.target] = relative[one.source],
            ADD_IMMEDIATE => {
                relative[one.target] = relative[one.target].map(|base| base + i64::from(one.immediate));
                reached = relative[one.target];
            }
            CALL => {
                relative[..=5].fill(None);
                if one.source == PSEUDO_CALL {
                    calls.insert(callee(file, targets.get(&at), index, at, one.immediate)?);
                }
            }
            LOAD_ADDRESS if one.source == PSEUDO_FUNCTION => {
                return Err("it takes the address of a function, which is not followed here".to_owned());
            }
            code if matches!(code & CLASSES, STORE_IMMEDIATE | STORE) => {}
            // All other instructions change their target register; jumps have none.
            _ if one.target != FRAME_POINTER && !is_jump(one.code) => relative[one.target] = None,
            _ => {}
        }
        stack = stack.max(reached.map_or(0, |reached| reached.min(0).unsigned_abs()));
    }
    let stack = u32::try_from(stack).map_err(|error| error.to_string())?;
    Ok(Function { name: name.to_owned(), instructions: code.len() / INSTRUCTION, stack, calls })
}

fn is_jump(code: u8) -> bool {
    matches!(code & CLASSES, 5 | 6)
}

struct Instruction {
    code: u8,
    target: usize,
    source: usize,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn of([code, registers, o0, o1, i0, i1, i2, i3]: [u8; INSTRUCTION]) -> Self {
        let low = usize::from(registers & 15);
        let high = usize::from(registers >> 4);
        let (target, source) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        let offset = i16::from_ne_bytes([o0, o1]);
        Self { code, target, source, offset, immediate: i32::from_ne_bytes([i0, i1, i2, i3]) }
    }
}

/// Returns the function that a call leads to. Its number counts instructions after the call, or, for a
/// relocated call, after the symbol, which is a section or a function.
fn callee(
    file: &File<'_>,
    relocated: Option<&RelocationTarget>,
    index: SectionIndex,
    at: u64,
    instructions: i32,
) -> Result<Start, String> {
    let (index, from) = match relocated {
        None => (index.0, at),
        Some(RelocationTarget::Symbol(symbol)) => {
            let symbol = file.symbol_by_index(*symbol).map_err(|error| error.to_string())?;
            let index = symbol.section_index().ok_or("it calls a symbol that is in no section")?;
            (index.0, symbol.address())
        }
        Some(other) => return Err(format!("it calls what is neither a function nor a section: {other:?}")),
    };
    let start = (i64::from(instructions) + 1) * INSTRUCTION as i64;
    from.checked_add_signed(start)
        .map(|start| (index, start))
        .ok_or_else(|| format!("it calls {start} bytes from {from}"))
}

/// Returns the chain of calls from `start` with the largest stack, and its size; an error if the kernel would
/// refuse a chain.
fn deepest(functions: &Functions, start: Start) -> Result<(u32, String), String> {
    let mut chain = Vec::new();
    let mut most = (0, String::new());
    descend(functions, start, &mut chain, &mut most)?;
    Ok(most)
}

fn descend<'a>(
    functions: &'a Functions,
    start: Start,
    chain: &mut Vec<&'a Function>,
    most: &mut (u32, String),
) -> Result<(), String> {
    let function = &functions[&start];
    let again = chain.iter().any(|caller| std::ptr::eq(*caller, function));
    chain.push(function);
    let sum = chain.iter().map(|function| function.frame()).sum();
    let named: Vec<_> =
        chain.iter().map(|function| format!("{} ({})", function.name, function.frame())).collect();
    let named = format!("{} = {sum} bytes of stack", named.join(" + "));
    if again {
        return Err(format!("{named}: it calls itself"));
    }
    if chain.len() > FRAMES {
        return Err(format!("{named}: more than {FRAMES} frames"));
    }
    if sum > STACK {
        return Err(format!("{named}: more than {STACK}"));
    }
    if sum > most.0 {
        *most = (sum, named);
    }
    for call in &function.calls {
        descend(functions, *call, chain, most)?;
    }
    chain.pop();
    Ok(())
}

#[test]
fn every_chain_of_calls_fits_the_stack_of_older_kernels() {
    let functions = functions(&object()).expect("the built-in object");
    let programs = HOOKS.iter().flat_map(|hook| hook.tries).flat_map(|one| one.programs);
    let mut n = 0;
    let mut called = BTreeSet::new();
    for program in programs {
        let found = functions.iter().find(|(_, function)| function.name == program.name);
        let (start, function) = found.unwrap_or_else(|| panic!("no program {}", program.name));
        if let Err(why) = deepest(&functions, *start) {
            panic!("kernels up to Linux 6.12 refuse {}: {why}", program.name);
        }
        n += 1;
        called.extend(&function.calls);
    }
    assert!(n > 0, "there is a program");
    // An analysis that finds neither calls nor frames would not find an error either.
    let called: BTreeSet<_> = called.iter().map(|start| functions[start].name.as_str()).collect();
    assert!(called.contains("container") && called.contains("cni_send"), "{called:?}");
    let of = |name| functions.values().find(|function| function.name == name).map(|function| function.stack);
    assert!(of("cni_send") > Some(ROUND), "{:?}", of("cni_send"));
}

/// Functions with these stack sizes, each of which calls the next.
fn chain_of(stacks: &[u32]) -> Functions {
    let at = |n: usize| (1, n as u64);
    let function = |(n, stack): (usize, &u32)| {
        let calls = if n + 1 < stacks.len() { BTreeSet::from([at(n + 1)]) } else { BTreeSet::new() };
        (at(n), Function { name: format!("f{n}"), instructions: 1, stack: *stack, calls })
    };
    stacks.iter().enumerate().map(function).collect()
}

fn deepest_of(functions: &Functions) -> Result<(u32, String), String> {
    deepest(functions, (1, 0))
}

#[test]
fn frames_are_rounded_up_and_added_over_a_chain() {
    assert_eq!(deepest_of(&chain_of(&[224, 255, 1])).map(|(sum, _)| sum), Ok(512));
    let (sum, chain) = deepest_of(&chain_of(&[0, 40])).expect("it fits");
    assert_eq!((sum, chain.as_str()), (96, "f0 (32) + f1 (64) = 96 bytes of stack"));
}

#[test]
fn what_a_chain_cannot_be_is_named() {
    let refused = |functions: &Functions| deepest_of(functions).expect_err("a kernel refuses it");
    assert_eq!(
        refused(&chain_of(&[224, 257, 8])),
        "f0 (224) + f1 (288) + f2 (32) = 544 bytes of stack: more than 512"
    );
    assert!(deepest_of(&chain_of(&[8; 8])).is_ok());
    assert!(refused(&chain_of(&[8; 9])).ends_with("more than 8 frames"));
    let mut circle = chain_of(&[8, 8]);
    let end = circle.get_mut(&(1, 1)).expect("it is there");
    end.calls.insert((1, 0));
    assert!(refused(&circle).ends_with("it calls itself"), "{}", refused(&circle));
}
