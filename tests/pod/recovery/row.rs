//! One boot as `sandprobe boot -o json` tells it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::edge::{PodReport, Report};

pub(super) const COLUMNS: [&str; 4] = ["kubelet_ns", "static_pod_ns", "first_service_ns", "last_service_ns"];
pub(super) const PERIODS: [&str; 4] = ["first_ns", "second_ns", "third_ns", "fourth_ns"];

/// From the start of a program to its first own instruction, at most.
const NEAR: Duration = Duration::from_millis(50);
/// The emulator's one thread plays both processors in turn, a tenth of a second each, and may turn to the other between
/// the two: of so many programs one may be further away, but by no more than `FAR`. So may the node's kubelet, a program
/// of many megabytes, which relocates itself first of all (a static PIE) and is read from a cold disk.
const TURNED: usize = 10;
const FAR: Duration = Duration::from_millis(250);
/// A clock of the hardware counts seconds.
const SECOND_NS: i64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Row(Value);

impl Row {
    /// None of the line of the mean.
    pub(super) fn of(mut line: Value) -> Option<Self> {
        line.get_mut("boot").map(Value::take).map(Self)
    }

    pub(super) fn boot_id(&self) -> &str {
        self.0["boot_id"].as_str().unwrap_or_default()
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.0["zero"] == "order"
    }

    /// All pods of before are back.
    pub(super) fn is_complete(&self) -> bool {
        self.0["close"] == "all"
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

    /// The order came after the test before had ended, and before this boot.
    pub(super) fn ensure_ordered_since(&self, left: i64) -> Result<()> {
        let order = &self.0["order"];
        let by = order["by"].as_str().unwrap_or_default();
        ensure!(self.is_ordered() && by.contains("systemctl") && by.contains("reboot"), "{self:#?}");
        ensure!(order["source"] == "hook", "{order:#}");
        let at = number(&order["wall_ns"])?;
        ensure!((left..left + 5 * SECOND_NS).contains(&at), "the test ended at {left}: {order:#}");
        let before = number(&order["before_boot_ns"])?;
        let boot = number(&self.0["boot_wall_ns"])?;
        ensure!(before == boot - at && before > 0, "{self:#?}");
        Ok(())
    }

    /// No order was seen; the last sign of life is not much older than the end of the test before.
    pub(super) fn ensure_cut_after(&self, left: i64) -> Result<()> {
        ensure!(self.0["zero"] == "kernel" && self.0["no_order"] == "not_seen", "{self:#?}");
        let beat = number(&self.0["last_heartbeat_wall_ns"])?;
        // Every ten seconds, and a machine that is busy.
        ensure!(
            (left - 20 * SECOND_NS..left + 5 * SECOND_NS).contains(&beat),
            "the test ended at {left}: {beat}"
        );
        Ok(())
    }

    /// Everything that is known otherwise.
    pub(super) fn ensure_true(&self, report: &Report) -> Result<()> {
        self.ensure_times(report)?;
        self.ensure_order(report)?;
        self.ensure_network(report)
    }

    /// Each program began a little before its own first instruction.
    #[expect(clippy::print_stdout, reason = "what was measured is for whoever reads the run")]
    fn ensure_times(&self, report: &Report) -> Result<()> {
        let kubelet = self.milestone("kubelet_started")?;
        let mut all = vec![("kubelet".to_owned(), kubelet, report.began)];
        for (pod, at) in witnessed(report)? {
            let found = self.pods().iter().find(|it| it["pod"] == pod.full_name());
            let found = found.with_context(|| format!("{} is not told of: {self:#?}", pod.name))?;
            all.push((pod.full_name(), found, at));
        }
        let (near, far) = (i64::try_from(NEAR.as_nanos())?, i64::try_from(FAR.as_nanos())?);
        let (mut wrong, mut turned) = (Vec::new(), Vec::new());
        for (name, told, at) in &all {
            let early = i64::try_from(*at)? - number(&told["boot_ns"])?;
            let by = &told["source"];
            println!("{name}: told of {} ms before its first instruction, by {by}", early / 1_000_000);
            if by != "hook" || !(0..far).contains(&early) {
                wrong.push(name);
            } else if early >= near && name != "kubelet" {
                turned.push(name);
            }
        }
        ensure!(wrong.is_empty(), "too far from the truth, or by no hook: {wrong:?}");
        ensure!(turned.len() <= all.len() / TURNED, "too many are far from the truth: {turned:?}");
        Ok(())
    }

    /// Who came after whom is exact.
    fn ensure_order(&self, report: &Report) -> Result<()> {
        let mut truth = witnessed(report)?;
        truth.sort_by_key(|(_, at)| *at);
        let mut told: Vec<(i64, &str)> = Vec::new();
        for pod in self.pods() {
            told.push((number(&pod["boot_ns"])?, pod["pod"].as_str().context("a pod without a name")?));
        }
        told.sort_unstable();
        let told: Vec<&str> = told.into_iter().map(|(_, name)| name).collect();
        let names: Vec<String> = truth.iter().map(|(pod, _)| pod.full_name()).collect();
        ensure!(told == names, "{told:?}, and not {names:?}");
        let pods = || truth.iter().map(|(pod, _)| *pod);
        let services: Vec<&PodReport> = pods().filter(|pod| pod.is_service()).collect();
        for (milestone, pod) in [
            ("first_static_pod", pods().find(|pod| pod.is_static)),
            ("first_service_pod", services.first().copied()),
            ("last_service_pod", services.last().copied()),
        ] {
            let told = self.milestone(milestone)?;
            ensure!(told["pod"] == pod.context("no such pod")?.full_name(), "{told:#}");
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

    /// What failed before the network's first success, and what it cost.
    fn ensure_network(&self, report: &Report) -> Result<()> {
        let cni = &self.0["cni"];
        let tries = report.pods.iter().filter(|pod| pod.is_service()).flat_map(|pod| &pod.tries);
        let mut tries: Vec<_> = tries.collect();
        tries.sort_by_key(|it| it.step.asked);
        let failed = tries.iter().take_while(|it| it.error.is_some()).count();
        ensure!(failed > 0, "no ADD failed: {report:#?}");
        ensure!(cni["failed"] == failed && cni["plugin"] == "flannel", "{failed} failed: {cni:#}");
        let (first, good) = (tries[0].step, tries.get(failed).context("none succeeded")?.step);
        let lost = u64::try_from(number(&cni["lost_ns"])?)?;
        let bounds = good.asked.saturating_sub(first.done)..good.done - first.asked;
        ensure!(bounds.contains(&lost), "lost {lost}, and not of {bounds:?}");
        let success = u64::try_from(number(&self.milestone("cni_first_success")?["boot_ns"])?)?;
        ensure!((good.asked..good.done).contains(&success), "{success} is not in {good:?}");
        Ok(())
    }

    /// By everything that a table is made of.
    pub(super) fn ensure_same(&self, other: &Self) -> Result<()> {
        ensure!(self.0 == other.0, "{:#}\nis not\n{:#}", self.0, other.0);
        Ok(())
    }
}

/// The pods whose programs say when they began.
fn witnessed(report: &Report) -> Result<Vec<(&PodReport, u64)>> {
    let mut all = Vec::new();
    for pod in &report.pods {
        if let Some(at) = pod.first_instruction()? {
            all.push((pod, at));
        }
    }
    ensure!(all.len() >= 13, "{} pods said when they began", all.len());
    Ok(all)
}

pub(super) fn number(value: &Value) -> Result<i64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("no number: {value}"))
}
