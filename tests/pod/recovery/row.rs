//! One boot as `sandprobe boot -o json` reports it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    edge::{AGENT_POD, PodReport, Report, SYSTEM},
    kubelet::Step,
};

pub(super) const COLUMNS: [&str; 4] = ["kubelet_ns", "static_pod_ns", "first_service_ns", "last_service_ns"];
pub(super) const PERIODS: [&str; 4] = ["first_ns", "second_ns", "third_ns", "fourth_ns"];

/// The greatest difference between the time of an exec by a hook and by the kernel's own trace.
const NEAR: Duration = Duration::from_millis(5);
/// The emulator's one thread runs both CPUs in turn, a tenth of a second each. It may switch between the two
/// records. One program in each begun set of this many may be further away, but by no more than `FAR`.
const SWITCHED: usize = 10;
const FAR: Duration = Duration::from_millis(250);
/// The time that the machine takes from the exec to the program's first own instruction. It is printed for
/// each program.
const SOON: Duration = Duration::from_millis(50);
/// The precision of a time from `/proc` and of a file's date (docs/boot.md).
const TICK: Duration = Duration::from_millis(10);
/// A hardware clock counts seconds.
const SECOND_NS: i64 = 1_000_000_000;

/// When the agent began to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// Before the runtime, as a service. Hooks see everything.
    Early,
    /// After all pods, as one of them. Hooks saw only the order to reboot.
    Late,
}

#[derive(Clone, Debug)]
pub(super) struct Row(Value);

impl Row {
    /// Returns the row of a line. `None` for the line with the mean.
    pub(super) fn of(mut line: Value) -> Option<Self> {
        line.get_mut("boot").map(Value::take).map(Self)
    }

    pub(super) fn boot_id(&self) -> &str {
        self.0["boot_id"].as_str().unwrap_or_default()
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.0["zero"] == "order"
    }

    /// Whether all pods of the boot before are back.
    pub(super) fn is_complete(&self) -> bool {
        self.0["close"] == "all"
    }

    /// Whether a late agent has read all lists.
    pub(super) fn is_listed(&self) -> bool {
        ["kubelet_started", "cni_first_success"].iter().all(|name| self.milestone(name).is_ok())
    }

    pub(super) fn column(&self, name: &str) -> Result<i64> {
        number(&self.0["columns"][name]).with_context(|| format!("no {name}: {self:#?}"))
    }

    pub(super) fn pods(&self) -> &[Value] {
        self.0["pods"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn milestone(&self, name: &str) -> Result<&Value> {
        let mut all = self.0["milestones"].as_array().into_iter().flatten();
        all.find(|it| it["name"] == name).with_context(|| format!("no {name}: {self:#?}"))
    }

    /// Checks that the order came after the test before had ended, and before this boot.
    pub(super) fn ensure_ordered_since(&self, left: i64) -> Result<()> {
        let order = &self.0["order"];
        let by = order["by"].as_str().unwrap_or_default();
        ensure!(self.is_ordered() && by.contains("systemctl") && by.contains("reboot"), "{self:#?}");
        ensure!(order["source"] == "hook", "{order:#}");
        let at = number(&order["wall_ns"])?;
        let before = number(&order["before_boot_ns"])?;
        let boot = number(&self.0["boot_wall_ns"])?;
        ensure!((left..boot).contains(&at), "the test ended at {left}: {order:#}");
        ensure!(before == boot - at, "{self:#?}");
        Ok(())
    }

    /// Checks that no order was seen, and that the last heartbeat is not much older than the end of the test
    /// before.
    pub(super) fn ensure_cut_after(&self, left: i64) -> Result<()> {
        ensure!(self.0["zero"] == "kernel" && self.0["no_order"] == "not_seen", "{self:#?}");
        let beat = number(&self.0["last_heartbeat_wall_ns"])?;
        // A heartbeat comes every ten seconds, or later on a busy machine.
        ensure!(
            (left - 20 * SECOND_NS..number(&self.0["boot_wall_ns"])?).contains(&beat),
            "the test ended at {left}: {beat}"
        );
        Ok(())
    }

    /// Checks that the journal shows this many unseen boots between this boot and the last seen one.
    pub(super) fn ensure_unseen(&self, boots: u64) -> Result<()> {
        let unseen = &self.0["unseen"];
        ensure!(unseen["boots"] == boots && unseen["source"] == "journal", "{self:#?}");
        // The order that ended the last seen boot did not lead to this boot.
        ensure!(self.0["zero"] == "kernel" && self.0["no_order"] == "not_seen", "{self:#?}");
        Ok(())
    }

    /// Checks everything that the report knows too.
    pub(super) fn ensure_true(&self, report: &Report, agent: Agent) -> Result<()> {
        self.ensure_times(report, agent)?;
        self.ensure_order(report)?;
        match agent {
            Agent::Early => {
                ensure!(self.inexact().is_empty(), "{self:#?}");
                self.ensure_network(report)
            }
            Agent::Late => {
                ensure!(self.0["late"] == true, "{self:#?}");
                let all: Vec<&str> = COLUMNS.into_iter().chain(PERIODS).collect();
                ensure!(self.inexact() == all, "{:?}", self.inexact());
                self.ensure_network_unseen(report)
            }
        }
    }

    /// Returns the columns and periods that are marked as inexact.
    fn inexact(&self) -> Vec<&str> {
        self.0["inexact"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Checks the times. A hook's time is near the one of the kernel's own trace, and before the program's
    /// first own instruction. A late agent's time lies between the call that started the program and its
    /// answer.
    #[expect(clippy::print_stdout, reason = "the test prints what it measured")]
    fn ensure_times(&self, report: &Report, agent: Agent) -> Result<()> {
        let [near, far, soon, tick] =
            [NEAR, FAR, SOON, TICK].map(|it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
        let kubelet = self.milestone("kubelet_started")?;
        let (reported, forked) = (number(&kubelet["boot_ns"])?, i64::try_from(report.forked)?);
        let began = i64::try_from(report.began)?;
        let (by, bounds) = match agent {
            Agent::Early => ("hook", forked..began),
            Agent::Late => ("proc_start", forked - tick..forked + tick),
        };
        println!("kubelet: reported {} us before its first instruction", (began - reported) / 1_000);
        ensure!(
            kubelet["source"] == by && bounds.contains(&reported),
            "not by {by} in {bounds:?}: {kubelet:#}"
        );

        let (all, mut within, mut switched) = (witnessed(report)?, 0, Vec::new());
        for (pod, first) in &all {
            let found = self.pods().iter().find(|it| it["pod"] == pod.full_name());
            let found = found.with_context(|| format!("{} is not reported: {self:#?}", pod.name))?;
            let reported = number(&found["boot_ns"])?;
            let (first, executed) = (i64::try_from(*first)?, i64::try_from(pod.executed)?);
            let by = &found["source"];
            println!(
                "{}: reported {} us before its first instruction and {} us from its exec, by {by}",
                pod.full_name(),
                (first - reported) / 1_000,
                (reported - executed) / 1_000,
            );
            within += usize::from((reported - first).abs() < soon);
            match agent {
                Agent::Early => {
                    ensure!(by == "hook" && reported < first, "{} is reported too late: {found:#}", pod.name);
                    let apart = (reported - executed).abs();
                    ensure!(apart < far, "{} is reported {apart} ns from its exec: {found:#}", pod.name);
                    if apart >= near {
                        switched.push(&pod.name);
                    }
                }
                Agent::Late => {
                    let Step { asked, done } = pod.started;
                    let bounds = i64::try_from(asked)? - tick..i64::try_from(done)?;
                    ensure!(by == "file_time" && bounds.contains(&reported), "not in {bounds:?}: {found:#}");
                }
            }
        }
        println!("{within} of {} within {SOON:?} of their first instruction", all.len());
        ensure!(
            switched.len() <= all.len().div_ceil(SWITCHED),
            "not at the times of the kernel's trace: {switched:?}"
        );
        Ok(())
    }

    /// Checks the order of the pods, which must be exact.
    fn ensure_order(&self, report: &Report) -> Result<()> {
        let mut truth = witnessed(report)?;
        truth.sort_by_key(|(_, at)| *at);
        let mut reported: Vec<(i64, &str)> = Vec::new();
        let agent = format!("{SYSTEM}/{AGENT_POD}");
        for pod in self.pods().iter().filter(|pod| pod["pod"] != agent) {
            reported.push((number(&pod["boot_ns"])?, pod["pod"].as_str().context("a pod without a name")?));
        }
        reported.sort_unstable();
        let reported: Vec<&str> = reported.into_iter().map(|(_, name)| name).collect();
        let names: Vec<String> = truth.iter().map(|(pod, _)| pod.full_name()).collect();
        ensure!(reported == names, "{reported:?}, and not {names:?}");
        let pods = || truth.iter().map(|(pod, _)| *pod);
        let services: Vec<&PodReport> = pods().filter(|pod| pod.is_service()).collect();
        for (milestone, pod) in [
            ("first_static_pod", pods().find(|pod| pod.is_static)),
            ("first_service_pod", services.first().copied()),
            ("last_service_pod", services.last().copied()),
        ] {
            let reported = self.milestone(milestone)?;
            ensure!(reported["pod"] == pod.context("no such pod")?.full_name(), "{reported:#}");
        }
        let order = [
            "kernel_start",
            "init_started",
            "runtime_started",
            "kubelet_started",
            "first_static_pod",
            "cni_first_success",
            "first_service_pod",
            "last_service_pod",
        ];
        let times = order.map(|name| number(&self.milestone(name)?["boot_ns"]));
        let times = times.into_iter().collect::<Result<Vec<i64>>>()?;
        ensure!(times.is_sorted(), "{order:?}: {times:?}");
        Ok(())
    }

    /// Returns the number of pods that are back because they listen.
    pub(super) fn listening(&self) -> usize {
        self.pods().iter().filter(|pod| pod["recovered_by"] == "listening").count()
    }

    /// Checks that each service pod listens at the time that it prints, and that the row names the first and
    /// the last of them.
    #[expect(clippy::print_stdout, reason = "the test prints what it measured")]
    pub(super) fn ensure_listening(&self, report: &Report) -> Result<()> {
        let mut all = Vec::new();
        for pod in report.services() {
            let found = self.pods().iter().find(|it| it["pod"] == pod.full_name());
            let found = found.with_context(|| format!("{} is not reported: {self:#?}", pod.name))?;
            let (from, to) = pod.listening()?.with_context(|| format!("{} does not listen", pod.name))?;
            let reported = u64::try_from(number(&found["listening_boot_ns"])?)?;
            ensure!((from..to).contains(&reported), "{} listened from {from} to {to}: {found:#}", pod.name);
            println!(
                "{} listens: {} us after the call, of {}",
                pod.name,
                (reported - from) / 1_000,
                (to - from) / 1_000
            );
            all.push((reported, pod.full_name()));
        }
        all.sort_unstable();
        for (milestone, pod) in [("first_service_pod", all.first()), ("last_service_pod", all.last())] {
            let reported = self.milestone(milestone)?;
            ensure!(pod.is_some_and(|(_, name)| reported["pod"] == *name), "{reported:#}");
        }
        Ok(())
    }

    /// Checks the failed ADDs before the network's first success, and the time lost with them.
    fn ensure_network(&self, report: &Report) -> Result<()> {
        let cni = &self.0["cni"];
        let tries = report.services().flat_map(|pod| &pod.tries);
        let mut tries: Vec<_> = tries.collect();
        tries.sort_by_key(|it| it.step.asked);
        let failed = tries.iter().take_while(|it| it.error.is_some()).count();
        ensure!(failed > 0, "no ADD failed: {report:#?}");
        ensure!(cni["failed"] == failed && cni["plugin"] == "flannel", "{failed} failed: {cni:#}");
        let (first, good) = (tries[0].step, tries.get(failed).context("none succeeded")?.step);
        let lost = u64::try_from(number(&cni["lost_ns"])?)?;
        let bounds = good.asked.saturating_sub(first.done)..good.done - first.asked;
        ensure!(bounds.contains(&lost), "lost {lost}, which is not in {bounds:?}");
        let success = u64::try_from(number(&self.milestone("cni_first_success")?["boot_ns"])?)?;
        ensure!((good.asked..good.done).contains(&success), "{success} is not in {good:?}");
        Ok(())
    }

    /// Checks a boot whose ADDs nobody saw. The time of the first success comes from its address file, and
    /// the failed ADDs before are unknown.
    fn ensure_network_unseen(&self, report: &Report) -> Result<()> {
        let cni = &self.0["cni"];
        let since = u64::try_from(number(&cni["unseen_until_ns"])?)?;
        let tries = report.services().flat_map(|pod| &pod.tries);
        let good = tries.filter(|it| it.error.is_none()).map(|it| it.step).min_by_key(|it| it.done);
        let good = good.context("no ADD succeeded")?;
        ensure!(cni["failed"] == 0 && since > good.done, "{cni:#}");
        let success = self.milestone("cni_first_success")?;
        ensure!(success["source"] == "file_time", "{success:#}");
        let (at, tick) = (number(&success["boot_ns"])?, i64::try_from(TICK.as_nanos())?);
        let within = i64::try_from(good.asked)? - tick..i64::try_from(good.done)?;
        ensure!(within.contains(&at), "{at} is not in {within:?}");
        Ok(())
    }

    /// Checks that everything in the table is the same.
    pub(super) fn ensure_same(&self, other: &Self) -> Result<()> {
        ensure!(self.0 == other.0, "{:#}\nis not\n{:#}", self.0, other.0);
        Ok(())
    }
}

/// Returns the pods whose programs print when they began: all but the agent's.
fn witnessed(report: &Report) -> Result<Vec<(&PodReport, u64)>> {
    let mut all = Vec::new();
    for pod in &report.pods {
        if let Some(at) = pod.first_instruction()? {
            all.push((pod, at));
        }
    }
    let others = report.pods.iter().filter(|pod| pod.name != AGENT_POD).count();
    ensure!(others > 0 && all.len() == others, "{} of {others} pods printed when they began", all.len());
    Ok(all)
}

pub(super) fn number(value: &Value) -> Result<i64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("not a number: {value}"))
}
