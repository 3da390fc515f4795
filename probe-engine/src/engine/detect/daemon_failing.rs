//! **Rule:** a runtime or a kubelet of the node has failed three times, each time within a minute of its
//! start and within ten minutes of the time before, and none has come up since. It is confirmed a minute
//! after the first of these starts, and not while a process runs for longer than those that failed lived:
//! that one may come up.
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
        fact::Said,
        finding::{DaemonFailing, Explain, FindingKind, Key, Kind, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        said::{forget_times, nothing_said, quotation},
        shell::unit_commands,
        span::span,
    },
};

/// How long the finding stays open if nobody starts the daemon any more, as when systemd has given up.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(60 * 60);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for row in ctx.world.failing.values().filter(|row| row.count > 1) {
        let runs_since = runs_since(ctx, row);
        let over_at = row.last_at + AFTERWARDS;
        let over_at = runs_since.map_or(over_at, |since| over_at.min(since + UP));
        if ctx.now < over_at {
            found.push(failing(ctx, row, runs_since, over_at));
        }
    }
}

/// Returns since when the earliest process of this name runs.
fn runs_since(ctx: &DetectContext<'_>, row: &Failing) -> Option<Timestamp> {
    let running = lookup::daemons::named(ctx.world, |comm| comm == row.comm);
    running.filter(|it| !it.program.is_query).map(|it| Timestamp(it.key.start)).min()
}

fn failing(
    ctx: &DetectContext<'_>,
    row: &Failing,
    runs_since: Option<Timestamp>,
    over_at: Timestamp,
) -> Detection {
    let words = row.words.as_ref();
    let (said, unsaid) = words.map(|it| (it.said.clone(), it.unsaid.clone())).unwrap_or_default();
    let key = Key::new(FindingKind::DaemonFailing.into_str(), &[&row.comm]);
    let verdict = match ready(ctx, row, runs_since) {
        _ if ctx.open_finding(&key).is_some() => Verdict::Passing { until: over_at },
        Some(ready) if ctx.now >= ready => Verdict::Passing { until: over_at },
        ready => Verdict::Watched { until: Some(ready.map_or(over_at, |ready| ready.min(over_at))) },
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
        key,
        kind,
        severity: if serves && has_pods { Severity::Critical } else { Severity::Warning },
        since: row.since,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        verdict,
    }
}

/// Returns when it is confirmed; none if it may come up.
fn ready(ctx: &DetectContext<'_>, row: &Failing, runs_since: Option<Timestamp>) -> Option<Timestamp> {
    let many_at = row.many_at?;
    if runs_since.is_some_and(|since| ctx.now >= since + row.longest) {
        return None;
    }
    let ready = many_at.max(row.since + UP);
    // Until then the logs are searched.
    let is_searched = row.words.as_ref().is_some_and(|it| !it.said.is_empty() || it.unsaid.is_some());
    Some(if is_searched { ready } else { ready.max(many_at + LEAD) })
}

impl DaemonFailing {
    /// Returns what it said about its end. Who is killed or crashes says nothing about that.
    fn last_words(&self) -> &[Said] {
        if self.signal.is_some() || self.oom { &[] } else { &self.said }
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
            quotation(self.last_words())
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
        if !self.last_words().is_empty() {
            all.push("# Repair what the words name with which it ended.".to_owned());
        } else if let Some(unsaid) = &self.unsaid {
            all.push(nothing_said(unsaid));
        }
        all.extend(unit_commands(&self.daemon));
        all
    }

    fn said(&self) -> &[Said] {
        &self.said
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
            (
                "kubelite",
                1,
                None,
                false,
                "with exit code 1",
                "says so",
                unit("snap.microk8s.daemon-kubelite"),
            ),
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
