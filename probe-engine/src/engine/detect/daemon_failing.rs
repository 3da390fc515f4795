//! **Rule:** a runtime or a kubelet of the node has failed three times, each time within a minute of its
//! start and within ten minutes of the time before, and none has come up since.
//!
//! It failed if it ended with another code than 0, or by a signal that nobody sent to it.
//!
//! Not flagged: a daemon that somebody stops or kills, however often; a program that is asked for something
//! (`crio status`) or ends with success; one whose name has another process that has come up; a process in a
//! container; one of which only some ends were seen.
//!
//! It is critical where the node has pods.

use std::time::Duration;

use super::{DetectContext, Detection, Verdict, words::LEAD};
use crate::{
    engine::world::{
        lookup,
        table::failing::{FAILED, Failing, UP},
    },
    model::{
        finding::{DaemonFailing, Explain, Key, Kind, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        said::{REPAIR_WHAT_IS_SAID, forget_times, nothing_said, quotation},
        shell::unit_commands,
        span::span,
    },
};

/// How long the finding stays open if nobody starts the daemon any more, as when systemd has given up.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(60 * 60);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for row in ctx.world.failing.values() {
        let over_at = row.last_at + AFTERWARDS;
        if row.count > 1 && ctx.now < over_at {
            let up_at = up_at(ctx, row);
            if up_at.is_none_or(|at| ctx.now < at) {
                found.push(failing(ctx, row, up_at.map_or(over_at, |at| at.min(over_at))));
            }
        }
    }
}

/// Returns when the earliest process of this name that runs has come up.
fn up_at(ctx: &DetectContext<'_>, row: &Failing) -> Option<Timestamp> {
    let running = lookup::daemons::named(ctx.world, |comm| comm == row.comm);
    running.filter(|it| !it.program.is_query).map(|it| Timestamp(it.key.start) + UP).min()
}

fn failing(ctx: &DetectContext<'_>, row: &Failing, until: Timestamp) -> Detection {
    let (said, unsaid) =
        row.words.as_ref().map(|it| (it.said.clone(), it.unsaid.clone())).unwrap_or_default();
    let verdict = match row.many_at {
        None => Verdict::Watched { until: Some(until) },
        // The logs are being searched.
        Some(at) if said.is_empty() && unsaid.is_none() && ctx.now < at + LEAD => {
            Verdict::Watched { until: Some(until.min(at + LEAD)) }
        }
        Some(_) => Verdict::Passing { until },
    };
    let serves = lookup::daemons::serves_pods(ctx.world, &row.comm);
    let has_pods = ctx.world.pods.values().any(|pod| pod.is_present());
    let kind = Kind::from(DaemonFailing {
        daemon: row.comm.clone(),
        count: row.count,
        lasted: row.last_at.since(row.since),
        exit_code: row.last.code,
        signal: row.last.signal,
        oom: row.last.oom,
        said,
        unsaid,
    });
    Detection {
        key: Key::new(kind.into_str(), &[&row.comm]),
        kind,
        severity: if serves && has_pods { Severity::Critical } else { Severity::Warning },
        since: row.since,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        verdict,
    }
}

impl Explain for DaemonFailing {
    fn summary(&self) -> String {
        let daemon = escaped(&self.daemon);
        let (count, lasted) = (counted(self.count.into(), "time"), span(self.lasted));
        let how = match self.signal {
            _ if self.oom => "by the OOM killer".to_owned(),
            Some(signal) => format!("by signal {signal}"),
            None => format!("with exit code {}", self.exit_code),
        };
        format!(
            "{daemon} does not come up: it failed {count} in {lasted}, the last time {how}{}",
            quotation(&self.said)
        )
    }

    fn cause(&self) -> &'static str {
        if self.oom {
            "The kernel's OOM killer ends the daemon soon after each start: its memory limit, or the node's memory, is too \
             small for it. Pods that run go on; none can start or stop."
        } else if self.signal.is_some() {
            "The daemon crashes soon after each start. Pods that run go on; none can start or stop."
        } else {
            "The daemon finds something at its start without which it does not go on, says so, and ends. Its supervisor \
             starts it again, until it gives up. Pods that run go on; none can start or stop."
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = Vec::new();
        if !self.said.is_empty() {
            all.push(REPAIR_WHAT_IS_SAID.to_owned());
        } else if let Some(unsaid) = &self.unsaid {
            all.push(nothing_said(unsaid));
        }
        all.extend(unit_commands(&self.daemon));
        all
    }

    fn forget_numbers(&mut self) {
        (self.count, self.lasted) = (FAILED, Duration::ZERO);
        forget_times(&mut self.said);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DaemonFailing, Explain};

    #[test]
    fn how_a_daemon_ends_is_said() {
        let unit = |unit: &str| format!("systemctl reset-failed {unit}; systemctl restart {unit}");
        for (daemon, exit_code, signal, oom, how, cause, start) in [
            ("kubelet", 1, None, false, "with exit code 1", "something at its start", unit("kubelet")),
            ("containerd", 139, Some(11), false, "by signal 11", "crashes", unit("containerd")),
            ("dockerd", 137, Some(9), true, "by the OOM killer", "memory", unit("docker")),
            ("cri-dockerd", 1, None, false, "with exit code 1", "says so", unit("cri-docker")),
            ("k3s-agent", 1, None, false, "with exit code 1", "says so", unit("k3s-agent")),
        ] {
            let it = DaemonFailing {
                daemon: daemon.to_owned(),
                count: 3,
                lasted: Duration::from_secs(9),
                exit_code,
                signal,
                oom,
                said: Vec::new(),
                unsaid: Some("it is not in /var/log/journal".to_owned()),
            };
            let expected =
                format!("{daemon} does not come up: it failed 3 times in 9.00 s, the last time {how}");
            assert_eq!(it.summary(), expected);
            assert!(it.cause().contains(cause), "{}", it.cause());
            let repair = it.repair(&[], &[]);
            assert!(repair.contains(&start), "{repair:?}");
            assert!(repair[0].contains("it is not in /var/log/journal"), "{repair:?}");
        }
    }
}
