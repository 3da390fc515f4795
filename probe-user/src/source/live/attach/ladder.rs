//! Tries a hook's mechanisms, the best first.

use std::collections::BTreeSet;

use aya::{
    Btf, Ebpf,
    programs::{Program as Loaded, ProgramError},
};

use super::{HookReport, reason::Why, support::Support};
use crate::source::live::plan::{Hook, Program, Try};

pub(super) struct Ladder<'a> {
    pub(super) ebpf: &'a mut Ebpf,
    /// The kernel's types as aya reads them; `None` if aya cannot.
    pub(super) btf: Option<&'a Btf>,
    pub(super) support: Support<'a>,
}

impl Ladder<'_> {
    pub(super) fn climb(&mut self, hook: &Hook) -> HookReport {
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
        let loaded =
            self.ebpf.program_mut(program.name).ok_or_else(|| said("the eBPF object has no such program"))?;
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
        let unloaded = match self.ebpf.program_mut(program.name) {
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
