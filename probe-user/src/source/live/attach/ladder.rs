//! Tries each hook's mechanisms, the best first. Hooks are tried at the same time, because the kernel takes most of a start
//! to verify programs, and verifies several at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Btf, Ebpf,
    programs::{Program as Loaded, ProgramError},
};

use super::{HookReport, reason::Why, support::Support};
use crate::source::live::plan::{HOOKS, Hook, Program, Try};

/// Attaches each hook by the first mechanism that works. `btf` is `None` if aya cannot read it.
pub(super) fn climb_all(ebpf: &mut Ebpf, btf: Option<&Btf>, support: &Support<'_>) -> Vec<HookReport> {
    let mut all: BTreeMap<&str, &mut Loaded> = ebpf.programs_mut().collect();
    let ladders = HOOKS.iter().map(|hook| {
        let own = hook.tries.iter().flat_map(|one| one.programs);
        let programs = own.filter_map(|program| all.remove_entry(program.name)).collect();
        Ladder { hook, programs, btf, support }
    });
    let ladders: Vec<Ladder<'_>> = ladders.collect();
    let waiting = Mutex::new(ladders.into_iter().enumerate());
    let reports = Mutex::new(BTreeMap::new());
    let climb = || {
        loop {
            // The lock is free again while the ladder is climbed.
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, mut ladder)) = next else { return };
            let report = ladder.climb();
            reports.lock().unwrap_or_else(PoisonError::into_inner).insert(place, report);
        }
    };
    let others = thread::available_parallelism().map_or(0, |all| all.get() - 1);
    thread::scope(|scope| {
        for _ in 0..others.min(MOST) {
            // Without it the others take longer.
            thread::Builder::new().name("loader".to_owned()).spawn_scoped(scope, climb).ok();
        }
        climb();
    });
    reports.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// At most this many threads beside the main one. The program that takes longest takes a fifth of the time of all.
const MOST: usize = 3;

/// A hook, and its programs by name.
struct Ladder<'a> {
    hook: &'a Hook,
    programs: BTreeMap<&'a str, &'a mut Loaded>,
    btf: Option<&'a Btf>,
    support: &'a Support<'a>,
}

impl Ladder<'_> {
    fn climb(&mut self) -> HookReport {
        let hook = self.hook;
        let mut report = HookReport {
            signal: hook.signal,
            need: hook.need,
            mechanism: None,
            programs: Vec::new(),
            note: "",
            netlink: hook.netlink,
            missed: Vec::new(),
            lacks: BTreeSet::new(),
        };
        for one in hook.tries {
            let tried = self.support.check(hook, one).and_then(|()| self.attach(one));
            match tried {
                Ok(()) => {
                    report.mechanism = Some(one.mechanism);
                    report.programs = one.programs.iter().map(|program| program.name).collect();
                    report.note = one.note;
                    break;
                }
                Err(why) => {
                    report.missed.push((one.mechanism, why.text));
                    // Only the best mechanism that could be had counts: with it the others would not be used.
                    if report.lacks.is_empty() {
                        report.lacks = why.lacks;
                    }
                }
            }
        }
        report
    }

    /// Attaches all programs of a mechanism, or none.
    fn attach(&mut self, one: &Try) -> Result<(), Why> {
        for (i, program) in one.programs.iter().enumerate() {
            if let Err(why) = self.attach_one(program) {
                for before in one.programs.iter().take(i + 1) {
                    self.unload(before);
                }
                return Err(Why { text: format!("{}: {}", program.target, why.text), ..why });
            }
        }
        Ok(())
    }

    fn attach_one(&mut self, program: &Program) -> Result<(), Why> {
        let said = |text: &str| Why::from(text.to_owned());
        let btf = self.btf.ok_or_else(|| said("the kernel's BTF is of a form that aya does not know"));
        let target = program.target;
        let no_program = || said("the eBPF object has no such program");
        let loaded = &mut **self.programs.get_mut(program.name).ok_or_else(no_program)?;
        let is_perf_event = matches!(loaded, Loaded::TracePoint(_) | Loaded::KProbe(_));
        let attached = match loaded {
            Loaded::RawTracePoint(own) => own.load().and_then(|()| own.attach(target).map(drop)),
            Loaded::FEntry(own) => own.load(target, btf?).and_then(|()| own.attach().map(drop)),
            Loaded::FExit(own) => own.load(target, btf?).and_then(|()| own.attach().map(drop)),
            Loaded::KProbe(own) => own.load().and_then(|()| own.attach(target, 0).map(drop)),
            Loaded::TracePoint(own) => {
                let (category, name) = target.split_once(':').ok_or_else(|| said("it has no category"))?;
                own.load().and_then(|()| own.attach(category, name).map(drop))
            }
            _ => return Err(said("the eBPF object has it as another kind of program")),
        };
        attached.map_err(|error| self.support.refused(&error, is_perf_event))
    }

    /// Detaches a program and frees its memory.
    fn unload(&mut self, program: &Program) {
        let unloaded = match self.programs.get_mut(program.name).map(|loaded| &mut **loaded) {
            Some(Loaded::RawTracePoint(own)) => own.unload(),
            Some(Loaded::FEntry(own)) => own.unload(),
            Some(Loaded::FExit(own)) => own.unload(),
            Some(Loaded::KProbe(own)) => own.unload(),
            Some(Loaded::TracePoint(own)) => own.unload(),
            _ => Ok(()),
        };
        match unloaded {
            Ok(()) | Err(ProgramError::NotLoaded) => {}
            Err(error) => tracing::warn!(program = program.name, %error, "program not unloaded"),
        }
    }
}
