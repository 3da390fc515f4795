//! Tries each hook's mechanisms, the best first. Hooks are tried in parallel, because most of a start is the
//! kernel's verification of programs, and the kernel verifies several at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Btf, Ebpf,
    programs::{Program as Loaded, ProgramError, links::FdLink},
};

use super::{HookReport, reason::Why, support::Support};
use crate::source::live::plan::{HOOKS, Hook, Program, Try};

/// The links that can be pinned, by program.
pub(super) type Links = BTreeMap<&'static str, FdLink>;

/// Attaches each hook by the first mechanism that works. `btf` is `None` if aya cannot read it. If
/// `takes_links`, returns the links that can be pinned; the others stay with their programs.
pub(super) fn climb_all(
    ebpf: &mut Ebpf,
    btf: Option<&Btf>,
    support: &Support<'_>,
    takes_links: bool,
) -> (Vec<HookReport>, Links) {
    let mut all: BTreeMap<&str, &mut Loaded> = ebpf.programs_mut().collect();
    let ladders = HOOKS.iter().map(|hook| {
        let own = hook.tries.iter().flat_map(|one| one.programs);
        let programs = own.filter_map(|program| all.remove_entry(program.name)).collect();
        Ladder { hook, programs, btf, support, takes_links, links: Links::new() }
    });
    let ladders: Vec<Ladder<'_>> = ladders.collect();
    let waiting = Mutex::new(ladders.into_iter().enumerate());
    let reports = Mutex::new(BTreeMap::new());
    let links = Mutex::new(Links::new());
    let climb = || {
        loop {
            // The lock is not held while the ladder is climbed.
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, mut ladder)) = next else { return };
            let report = ladder.climb();
            links.lock().unwrap_or_else(PoisonError::into_inner).append(&mut ladder.links);
            reports.lock().unwrap_or_else(PoisonError::into_inner).insert(place, report);
        }
    };
    let others = thread::available_parallelism().map_or(0, |all| all.get() - 1);
    thread::scope(|scope| {
        for _ in 0..others.min(MAX_THREADS) {
            // If a thread cannot be started, the others take longer.
            thread::Builder::new().name("loader".to_owned()).spawn_scoped(scope, climb).ok();
        }
        climb();
    });
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    (reports.into_values().collect(), links.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The most threads beside the main one. The program that takes longest takes a fifth of the time of all.
const MAX_THREADS: usize = 3;

/// A hook, and its programs by name.
struct Ladder<'a> {
    hook: &'a Hook,
    programs: BTreeMap<&'a str, &'a mut Loaded>,
    btf: Option<&'a Btf>,
    support: &'a Support<'a>,
    takes_links: bool,
    links: Links,
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
            may_improve: false,
        };
        for one in hook.tries {
            let tried = self.support.check(hook, one).and_then(|()| self.attach(one));
            match tried {
                Ok(()) => {
                    report.mechanism = Some(one.mechanism);
                    report.programs = one.names();
                    report.note = one.note;
                    break;
                }
                Err(why) => {
                    report.missed.push((one.mechanism, why.text));
                    report.may_improve |= why.may_pass;
                    // Only the best mechanism that could be enabled counts: the others would then not be
                    // used.
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
        let btf = self.btf.ok_or_else(|| Why::from("the kernel's BTF is of a form that aya does not know"));
        let target = program.target;
        let loaded = self.programs.get_mut(program.name);
        let loaded = &mut **loaded.ok_or_else(|| Why::from("the eBPF object has no such program"))?;
        let is_perf_event = matches!(loaded, Loaded::TracePoint(_) | Loaded::KProbe(_));
        let takes = self.takes_links;
        // A link that cannot be pinned is lost when it is taken, so its program is attached again.
        let attached = match loaded {
            Loaded::RawTracePoint(own) => own.load().and_then(|()| {
                let id = own.attach(target)?;
                takes.then(|| own.take_link(id).map(FdLink::from)).transpose()
            }),
            Loaded::FEntry(own) => own.load(target, btf?).and_then(|()| {
                let id = own.attach()?;
                takes.then(|| own.take_link(id).map(FdLink::from)).transpose()
            }),
            Loaded::FExit(own) => own.load(target, btf?).and_then(|()| {
                let id = own.attach()?;
                takes.then(|| own.take_link(id).map(FdLink::from)).transpose()
            }),
            Loaded::KProbe(own) => own.load().and_then(|()| {
                let id = own.attach(target, 0)?;
                if !takes {
                    return Ok(None);
                }
                match FdLink::try_from(own.take_link(id)?) {
                    Ok(link) => Ok(Some(link)),
                    Err(_) => own.attach(target, 0).map(|_| None),
                }
            }),
            Loaded::TracePoint(own) => {
                let (category, name) =
                    target.split_once(':').ok_or_else(|| Why::from("it has no category"))?;
                own.load().and_then(|()| {
                    let id = own.attach(category, name)?;
                    if !takes {
                        return Ok(None);
                    }
                    match FdLink::try_from(own.take_link(id)?) {
                        Ok(link) => Ok(Some(link)),
                        Err(_) => own.attach(category, name).map(|_| None),
                    }
                })
            }
            _ => return Err(Why::from("the eBPF object has it as another kind of program")),
        };
        let link = attached.map_err(|error| self.support.refused(&error, is_perf_event))?;
        if let Some(link) = link {
            self.links.insert(program.name, link);
        }
        Ok(())
    }

    /// Detaches a program and frees its memory.
    fn unload(&mut self, program: &Program) {
        self.links.remove(program.name);
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
