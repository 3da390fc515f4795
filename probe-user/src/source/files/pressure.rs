//! Reads the resource counters of a pod's cgroup: CPU time and throttling, memory events, and pressure stall
//! information.
//!
//! cgroup v2 has all of them (`Documentation/admin-guide/cgroup-v2.rst`). cgroup v1 has fewer, under other
//! names and in other units (`Documentation/admin-guide/cgroup-v1`, `Documentation/scheduler/sched-bwc.rst`).
//! A hybrid node has both, with the same paths.
//!
//! The counters of a pod that starts are read several times within a second or two, so its files stay open
//! for a while. The runtime's waits for input and output are read too, because the runtime pulls the pod's
//! images.

mod open;
mod runtime;

use std::time::Duration;

use self::{open::OpenCgroup, runtime::Daemon};
use crate::{
    model::{
        fact::{CpuUse, MemoryEvents, Pressure, Stall},
        time::Timestamp,
    },
    source::{
        host::{HostRoot, lines},
        node::cgroup::Layout,
    },
};

/// The most containers of a pod that are read.
const MAX_CONTAINERS: usize = 64;
/// The most pods whose files stay open.
const MAX_OPEN_PODS: usize = 8;
/// The file with the waits for input and output.
const IO_PRESSURE: &str = "io.pressure";
/// How long files stay open after they were last read.
const OPEN_TIME: Duration = Duration::from_secs(5);

/// Reads counters of pods.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// The pod that was read last is at the end.
    pods: Vec<Pod>,
    runtime: Daemon,
}

/// The cgroups of a pod in the hierarchies that have counters.
#[derive(Debug)]
struct Pod {
    path: String,
    read: Timestamp,
    unified: Option<OpenCgroup>,
    cpu: Option<OpenCgroup>,
    cpuacct: Option<OpenCgroup>,
    memory: Option<OpenCgroup>,
}

impl Gauges {
    /// Reads the counters; `path` is relative to the root of its hierarchy. `None` if no hierarchy has any.
    pub(crate) fn read(
        &mut self,
        root: &HostRoot,
        layout: &Layout,
        path: &str,
        now: Timestamp,
    ) -> Option<Pressure> {
        self.close(now);
        let known = self.pods.iter().position(|pod| pod.path == path).map(|place| self.pods.remove(place));
        let again = known.and_then(|mut pod| Some((pod.counters()?, pod)));
        let (pressure, pod) = match again {
            Some(read) => read,
            // The pod is read for the first time, or its cgroup was removed and perhaps made again.
            None => {
                let mut pod = Pod::open(root, layout, path);
                (pod.counters()?, pod)
            }
        };
        if self.pods.len() >= MAX_OPEN_PODS {
            self.pods.remove(0);
        }
        self.pods.push(Pod { read: now, ..pod });
        Some(Pressure { runtime_io: self.runtime.io_stall(root, layout, now), ..pressure })
    }

    /// Closes the files that were not read recently.
    pub(crate) fn close(&mut self, now: Timestamp) {
        self.pods.retain(|pod| now < pod.read + OPEN_TIME);
        self.runtime.close(now);
    }
}

impl Pod {
    fn open(root: &HostRoot, layout: &Layout, path: &str) -> Self {
        let below = path.trim_start_matches('/');
        let [unified, cpu, cpuacct, memory] = [
            layout.unified(),
            layout.controller("cpu"),
            layout.controller("cpuacct"),
            layout.controller("memory"),
        ]
        .map(|hierarchy| root.folder(format!("{}/{below}", hierarchy?.mount)).ok().map(OpenCgroup::new));
        Self { path: path.to_owned(), read: Timestamp::ZERO, unified, cpu, cpuacct, memory }
    }

    /// Reads the counters; `None` if there are none, or if a cgroup was removed since its files were opened.
    fn counters(&mut self) -> Option<Pressure> {
        let Self { path: _, read: _, unified, cpu, cpuacct, memory } = self;
        let pressure = Pressure {
            cpu: self::cpu(unified.as_mut(), cpu.as_mut(), cpuacct.as_mut()),
            memory: unified.as_mut().and_then(self::memory).or_else(|| legacy_memory(memory.as_mut()?)),
            cpu_stall: unified.as_mut().and_then(|it| stall(it, "cpu.pressure")),
            memory_stall: unified.as_mut().and_then(|it| stall(it, "memory.pressure")),
            io_stall: unified.as_mut().and_then(|it| stall(it, IO_PRESSURE)),
            runtime_io: None,
        };
        let mut all = [unified, cpu, cpuacct, memory].into_iter().flatten();
        (pressure != Pressure::default() && !all.any(|it| it.is_gone())).then_some(pressure)
    }
}

/// Reads CPU usage and throttling. Usage is in either hierarchy, throttling in the one with the controller.
/// On a hybrid node that is v1, and the `cpu.stat` of v2 has only the usage.
fn cpu(
    unified: Option<&mut OpenCgroup>,
    cpu: Option<&mut OpenCgroup>,
    cpuacct: Option<&mut OpenCgroup>,
) -> Option<CpuUse> {
    let mut used = None;
    let mut own = None;
    if let Some(unified) = unified {
        used = self::used(unified);
        own = throttling(unified);
    }
    let used = used.or_else(|| Some(Duration::from_nanos(number(&cpuacct?.read("cpuacct.usage")?)?)));
    let own = own.or_else(|| throttling(cpu?)).unwrap_or_default();
    Some(CpuUse { used: used?, throttled: own.throttled, periods: own.periods, limit: own.limit })
}

/// How much a cgroup was throttled, and by which limit in thousandths of a CPU.
#[derive(Default)]
struct Throttling {
    throttled: Duration,
    periods: u64,
    limit: Option<u64>,
}

fn used(unified: &mut OpenCgroup) -> Option<Duration> {
    member(&unified.read("cpu.stat")?, "usage_usec").map(Duration::from_micros)
}

/// Adds up the throttling by the pod's own limit and by its containers' limits. The kernel counts throttling
/// where the limit is set, and a pod has a limit only if all its containers have one.
fn throttling(pod: &mut OpenCgroup) -> Option<Throttling> {
    let mut all = own_throttling(pod)?;
    let mut most = all.throttled;
    for its in pod.below(MAX_CONTAINERS).filter_map(own_throttling) {
        all.throttled = all.throttled.saturating_add(its.throttled);
        all.periods = all.periods.saturating_add(its.periods);
        if its.throttled > most {
            most = its.throttled;
            all.limit = its.limit;
        }
    }
    Some(all)
}

fn own_throttling(cgroup: &mut OpenCgroup) -> Option<Throttling> {
    let (throttled, periods) = throttled(&cgroup.read("cpu.stat")?)?;
    let limit = if throttled.is_zero() { None } else { cpu_limit(cgroup) };
    Some(Throttling { throttled, periods, limit })
}

/// Returns the quota divided by its period, in thousandths of a CPU. v1 has each in a file of its own.
fn cpu_limit(cgroup: &mut OpenCgroup) -> Option<u64> {
    let (quota, period): (u64, u64) = if let Some(text) = cgroup.read("cpu.max") {
        let line = lines(&text).next()?;
        let (quota, period) = line.split_once(' ')?;
        (quota.parse().ok()?, period.trim().parse().ok()?)
    } else {
        (number(&cgroup.read("cpu.cfs_quota_us")?)?, number(&cgroup.read("cpu.cfs_period_us")?)?)
    };
    quota.checked_mul(1000)?.checked_div(period)
}

/// Returns how long and how often a cgroup was throttled. v2 counts in microseconds, v1 in nanoseconds.
fn throttled(text: &[u8]) -> Option<(Duration, u64)> {
    let micros = member(text, "throttled_usec").map(Duration::from_micros);
    let throttled = micros.or_else(|| member(text, "throttled_time").map(Duration::from_nanos))?;
    Some((throttled, member(text, "nr_throttled")?))
}

fn memory(cgroup: &mut OpenCgroup) -> Option<MemoryEvents> {
    let text = cgroup.read("memory.events")?;
    let [high, max, oom] = ["high", "max", "oom"].map(|name| member(&text, name));
    let high = high?;
    let max = max?;
    let oom = oom?;
    let limit = if high + max == 0 { None } else { memory_limit(cgroup, high > 0) };
    Some(MemoryEvents { high, max, oom, limit })
}

/// Returns the limit of the pod or of the container that reached its limit. `memory.events` includes the
/// cgroups below, and `memory.events.local`, since Linux 5.2, does not.
fn memory_limit(pod: &mut OpenCgroup, is_high: bool) -> Option<u64> {
    reached_limit(pod, is_high)
        .or_else(|| pod.below(MAX_CONTAINERS).find_map(|container| reached_limit(container, is_high)))
}

fn reached_limit(cgroup: &mut OpenCgroup, is_high: bool) -> Option<u64> {
    let (event, file) = if is_high { ("high", "memory.high") } else { ("max", "memory.max") };
    if member(&cgroup.read("memory.events.local")?, event)? == 0 {
        return None;
    }
    number(&cgroup.read(file)?)
}

/// Reads the memory events of cgroup v1. `oom_kill` exists since Linux 4.13.
fn legacy_memory(cgroup: &mut OpenCgroup) -> Option<MemoryEvents> {
    let max = number(&cgroup.read("memory.failcnt")?)?;
    let oom = cgroup.read("memory.oom_control").and_then(|text| member(&text, "oom_kill"));
    let limit =
        if max == 0 { None } else { cgroup.read("memory.limit_in_bytes").and_then(|text| number(&text)) };
    Some(MemoryEvents { high: 0, max, oom: oom.unwrap_or(0), limit })
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234` (microseconds), and the same line for `full`.
///
/// procfs-core is not used: it requires the line `full`, which `cpu.pressure` lacks before Linux 5.13.
fn stall(cgroup: &mut OpenCgroup, file: &'static str) -> Option<Stall> {
    let text = cgroup.read(file)?;
    Some(Stall { some: total(&text, "some")?, full: total(&text, "full").unwrap_or_default() })
}

/// Returns the total in the line with this name.
fn total(text: &[u8], name: &str) -> Option<Duration> {
    let micros = lines(text).find_map(|line| {
        let fields = line.strip_prefix(name)?.strip_prefix(' ')?;
        fields.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
    })?;
    Some(Duration::from_micros(micros))
}

/// Returns the number in the line with this name.
fn member(text: &[u8], name: &str) -> Option<u64> {
    lines(text).find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn number(text: &[u8]) -> Option<u64> {
    lines(text).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use super::{CpuUse, Gauges, HostRoot, Layout, MemoryEvents, Pressure, Stall, Timestamp};
    use crate::source::node::cgroup::Hierarchy;

    fn read(host: &HostRoot, layout: &Layout, path: &str) -> Option<Pressure> {
        Gauges::default().read(host, layout, path, Timestamp(1))
    }

    fn hierarchy(id: u32, controllers: &[&str], mount: &str) -> Hierarchy {
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        Hierarchy { id, controllers, mount: mount.to_owned() }
    }

    fn write(root: &Path, folder: &str, files: &[(&str, &str)]) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a file");
        }
    }

    #[test]
    fn v2_counts_in_microseconds() {
        let root = tempfile::tempdir().expect("a folder");
        let psi = "some avg10=0.00 avg60=0.10 avg300=0.00 total=2500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1500\n";
        write(
            root.path(),
            "sys/fs/cgroup/kubepods/pod1",
            &[
                (
                    "cpu.stat",
                    "usage_usec 3000\nuser_usec 1\nnr_periods 40\nnr_throttled 12\nthrottled_usec 1200000\n",
                ),
                ("cpu.max", "25000 100000\n"),
                ("memory.events", "low 0\nhigh 4\nmax 5\noom 6\noom_kill 7\n"),
                ("memory.events.local", "low 0\nhigh 0\nmax 5\noom 6\noom_kill 7\n"),
                ("memory.high", "max\n"),
                ("io.pressure", psi),
                ("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
            ],
        );
        // A container's limit counts for its pod too.
        write(
            root.path(),
            "sys/fs/cgroup/kubepods/pod1/c1",
            &[("memory.events.local", "low 0\nhigh 4\nmax 0\noom 0\n"), ("memory.high", "1048576\n")],
        );
        let host = HostRoot::open(root.path()).expect("the root");
        let layout = Layout { hierarchies: vec![hierarchy(0, &[], "/sys/fs/cgroup")] };
        let micros = Duration::from_micros;
        let expected = Pressure {
            cpu: Some(CpuUse {
                used: micros(3000),
                throttled: micros(1_200_000),
                periods: 12,
                limit: Some(250),
            }),
            memory: Some(MemoryEvents { high: 4, max: 5, oom: 6, limit: Some(1 << 20) }),
            cpu_stall: Some(Stall { some: micros(7), full: Duration::ZERO }),
            memory_stall: None,
            io_stall: Some(Stall { some: micros(2500), full: micros(1500) }),
            runtime_io: None,
        };
        assert_eq!(read(&host, &layout, "/kubepods/pod1"), Some(expected));
        assert_eq!(read(&host, &layout, "/kubepods/pod2"), None);
        assert_eq!(read(&host, &layout, "/../../etc"), None);
    }

    #[test]
    fn v1_counts_in_nanoseconds_and_a_hybrid_node_has_what_either_has() {
        let root = tempfile::tempdir().expect("a folder");
        let cpu = ("cpu.stat", "nr_periods 40\nnr_throttled 3\nthrottled_time 5000\n");
        write(
            root.path(),
            "cg/cpu,cpuacct/pod1",
            &[
                cpu,
                ("cpuacct.usage", "9000\n"),
                ("cpu.cfs_quota_us", "1500\n"),
                ("cpu.cfs_period_us", "100000\n"),
            ],
        );
        let oom = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        write(
            root.path(),
            "cg/memory/pod1",
            &[("memory.failcnt", "8\n"), ("memory.oom_control", oom), ("memory.limit_in_bytes", "4096\n")],
        );
        write(root.path(), "cg/unified/pod1", &[("memory.pressure", "some avg10=0.00 total=1\n")]);
        let host = HostRoot::open(root.path()).expect("the root");
        let layout = Layout {
            hierarchies: vec![
                hierarchy(0, &[], "/cg/unified"),
                hierarchy(4, &["cpu", "cpuacct"], "/cg/cpu,cpuacct"),
                hierarchy(12, &["memory"], "/cg/memory"),
            ],
        };
        let nanos = Duration::from_nanos;
        let expected = Pressure {
            cpu: Some(CpuUse { used: nanos(9000), throttled: nanos(5000), periods: 3, limit: Some(15) }),
            memory: Some(MemoryEvents { high: 0, max: 8, oom: 2, limit: Some(4096) }),
            memory_stall: Some(Stall { some: nanos(1000), full: Duration::ZERO }),
            ..Pressure::default()
        };
        assert_eq!(read(&host, &layout, "/pod1"), Some(expected));
    }

    #[test]
    fn a_container_is_held_back_by_its_own_limit() {
        let root = tempfile::tempdir().expect("a folder");
        let unlimited = ("cpu.stat", "usage_usec 3000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
        let limited = ("cpu.stat", "usage_usec 900\nnr_periods 9\nnr_throttled 8\nthrottled_usec 7000\n");
        let more = ("cpu.stat", "usage_usec 900\nnr_periods 9\nnr_throttled 8\nthrottled_usec 7001\n");
        write(root.path(), "cg/pod1", &[unlimited, ("cpu.max", "max 100000\n")]);
        write(root.path(), "cg/pod1/a", &[limited, ("cpu.max", "10000 100000\n")]);
        write(root.path(), "cg/pod1/b", &[unlimited, ("cpu.max", "max 100000\n")]);
        write(root.path(), "cg/pod1/c", &[more, ("cpu.max", "150000 100000\n")]);
        let host = HostRoot::open(root.path()).expect("the root");
        let layout = Layout { hierarchies: vec![hierarchy(0, &[], "/cg")] };
        let cpu = read(&host, &layout, "/pod1").and_then(|it| it.cpu);
        let micros = Duration::from_micros;
        let limit = Some(1500);
        assert_eq!(cpu, Some(CpuUse { used: micros(3000), throttled: micros(14_001), periods: 16, limit }));
    }

    #[test]
    fn on_a_hybrid_node_throttling_is_where_the_controller_is() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "cg/unified/pod1", &[("cpu.stat", "usage_usec 3000\nuser_usec 1\n")]);
        write(
            root.path(),
            "cg/cpu/pod1",
            &[("cpu.stat", "nr_periods 40\nnr_throttled 3\nthrottled_time 5000\n")],
        );
        let host = HostRoot::open(root.path()).expect("the root");
        let layout =
            Layout { hierarchies: vec![hierarchy(0, &[], "/cg/unified"), hierarchy(1, &["cpu"], "/cg/cpu")] };
        let cpu = read(&host, &layout, "/pod1").and_then(|it| it.cpu);
        let throttled = Duration::from_nanos(5000);
        assert_eq!(
            cpu,
            Some(CpuUse { used: Duration::from_micros(3000), throttled, periods: 3, limit: None })
        );
    }

    #[test]
    fn no_text_is_too_strange() {
        let root = tempfile::tempdir().expect("a folder");
        let host = HostRoot::open(root.path()).expect("the root");
        let layout = Layout { hierarchies: vec![hierarchy(0, &[], "/cg")] };
        for text in [
            "",
            "usage_usec",
            "usage_usec -1",
            "usage_usec 99999999999999999999",
            "some total=x",
            "\u{0}\n\n",
        ] {
            write(
                root.path(),
                "cg/p",
                &[("cpu.stat", text), ("memory.events", text), ("cpu.pressure", text)],
            );
            assert_eq!(read(&host, &layout, "/p"), None, "{text}");
        }
    }
}
