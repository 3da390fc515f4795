//! The checks of the signals: how each is seen here, what is lost by that, and what would be better.

use crate::{
    cli::on_node::node::hooks::Hooks,
    sink::{
        render::doctor::{Check, Grade, Missed, Row},
        span::span,
    },
    source::{
        live::{attach::HookReport, plan::Need, selftest::Outcome},
        node::missing_right::Privileges,
    },
};

/// Checks whether the hooks fire that the self-test can trigger.
pub(in crate::cli) fn check(hooks: &Hooks) -> Check {
    let attached = format!("attached in {}", span(hooks.took));
    let untested = hooks.test.outcomes.iter().find_map(|(signal, outcome)| match outcome {
        Outcome::Untested(why) => Some(format!("{} not tested: {why}", signal.into_str())),
        Outcome::Fired | Outcome::Silent => None,
    });
    let silent: Vec<&str> = hooks.test.silent().map(|signal| signal.into_str()).collect();
    match (untested, silent.is_empty()) {
        (_, false) => Check::degraded(
            "hooks",
            format!("{attached}, and these do not fire: {}", silent.join(", ")),
            "see below why; a reboot with kernel.ftrace_enabled=1 helps where that was changed",
        ),
        (Some(why), true) => Check::full("hooks", format!("{attached}; {why}")),
        (None, true) => Check::full("hooks", format!("{attached}, tested in {}", span(hooks.test.took))),
    }
}

pub(in crate::cli) fn row(report: &HookReport, here: Privileges) -> Row {
    let mechanism = report.mechanism.map(|mechanism| mechanism.into_str());
    let note = if mechanism.is_some() { report.note } else { "not seen" };
    let grade = match (mechanism, report.need) {
        (None, Need::Core) => Grade::Cannot,
        _ if note.is_empty() => Grade::Full,
        _ => Grade::Degraded,
    };
    let missed = report
        .missed
        .iter()
        .map(|(mechanism, why)| Missed { mechanism: mechanism.into_str(), why: why.clone() })
        .collect();
    Row {
        signal: report.signal.into_str(),
        grade,
        mechanism,
        programs: report.programs.clone(),
        note: note.to_owned(),
        lacks: here.named(&report.lacks),
        missed,
    }
}
