//! The privileged tests in virtual machines, with one kernel each, and at the same time the privileged tests
//! on this machine's own kernel.

use super::report::Tier;
use super::step::{Queue, Step};
use crate::arch::Arch;
use crate::build::Profile;
use crate::program::{self, script};
use crate::vm::{self, Init, Kernel, Runtime};
use std::cmp::Reverse;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fmt, thread};

/// The kernels that run pods, and their containerd.
#[derive(Clone, Copy)]
pub(super) enum Pods {
    /// No pods, only the hooks, on the newest kernel: it has features that this machine's own may lack.
    None,
    Pairs,
    Matrix,
    /// Only the matrix's machine of aarch64.
    Aarch64,
}

/// A kernel and its runtime. The init also decides on the cgroup driver.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Machine {
    /// `None` is this machine's own.
    arch: Option<Arch>,
    kernel: Kernel,
    runtime: Runtime,
    init: Init,
}

/// How a VM starts, and what it runs then.
#[derive(Clone)]
enum Boots {
    /// From a saved VM in which containerd runs.
    Saved(Vec<&'static str>),
    /// With a boot, and another one each time that its command reboots it.
    Fresh(&'static [Boot]),
}

/// The programs of one VM.
#[derive(Clone)]
struct Run {
    machine: Machine,
    /// Different for each run of a machine.
    name: &'static str,
    boots: Boots,
    /// The time limit of the VM.
    limit: Duration,
    /// It compares times, which another VM at the same time would change.
    is_timed: bool,
}

/// Each kernel with a containerd of its time, and one of them with systemd. The longest comes first, so that
/// the lanes end at about the same time.
const PAIRS: [Machine; 4] = [
    Machine::new(Kernel::V7, Runtime::Containerd2_1, Init::Quick),
    Machine::new(Kernel::V6_12, Runtime::Containerd2_1, Init::Quick),
    Machine::new(Kernel::V6_1, Runtime::Containerd1_7, Init::Systemd),
    Machine::new(Kernel::V5_10, Runtime::Containerd1_6, Init::Quick),
];
/// The newest and the oldest kernel. What both of them pass is not tested on the kernels between them.
const ENDS: [Machine; 2] = [PAIRS[0], PAIRS[3]];
/// The machine [`ONCE`] of the other architecture that the agent is built for. It is always emulated, and
/// left out where this machine is of that architecture itself.
const AARCH64: Machine = ONCE.of(Arch::Aarch64);
/// Each hook, and what it reports. A new test runs here until it is named as one whose result is the same on
/// each kernel. `failing_disk::` runs only on this machine: it needs drivers of disks that no VM has.
const HOOKS: &str = "kernel --skip agent:: --skip confine:: --skip cost:: --skip failing_disk:: --skip flood:: --skip forge:: \
                     --skip log_file:: --skip netlink:: --skip otlp:: --skip pinned:: --skip serve:: --skip stalled:: \
                     --skip storm:: --skip uninstall::";
const OF_ENDS: &str = "kernel netlink:: pinned:: stalled:: storm:: uninstall::";
/// Tests that have the same result on this machine, and are much faster there: in VMs only in the full
/// matrix.
const OUTPUTS: &[&str] = &["kernel serve::"];
const REST: &[&str] =
    &["kernel agent:: confine:: cost:: flood:: forge:: log_file:: otlp::", "pod harness:: many::"];
const PODS: &str = "pod release:: watch::";
/// The deployed agent, on the kernels with the fewest and with the most features.
const DEPLOYED: &[&str] = &["pod deployed::"];
/// Without the tests of Prometheus, which is a program of this machine's architecture.
const DEPLOYED_ACROSS: &[&str] = &["pod deployed:: --skip prometheus_alerts"];
const DEPLOYED_ON: [Machine; 3] = [PAIRS[3], PAIRS[1], AARCH64];
/// These tests start from a saved state of their own.
const VERDICTS: &[&str] = &["pod verdict::a_sandbox"];
const VERDICT_OF_NOTHING: &[&str] = &["pod verdict::with_host_local"];
/// Tests for which one kernel and one runtime are enough, and the reboots.
const ONCE: Machine = PAIRS[1];
/// Agents that are killed and replaced.
const ALONE: &[&str] = &["pod succession::"];
/// Full rings, what runtimes believe, and pods without a problem.
const LOSSES: &[&str] = &["pod full_ring:: belief:: verdict::losses", "pod verdict::healthy listening::"];
/// Tests that need systemd as the init.
const UNIT: &[&str] = &["pod unit::"];
const PHASES: &[&str] = &["pod phase::phases_are"];
/// Each story by itself. These tests check the harness, and run on this machine too.
const STORIES: &[&str] = &["pod story::"];
/// Pods that run while the node shuts down: the programs of each boot.
const REBOOTS: &[Boot] = &[
    Boot::new(&["pod reboot::pods_with_keyed_addresses"]),
    Boot::new(&["pod reboot::an_early_agent", "pod reboot::pods_with_keyed_addresses"]),
    Boot::new(&["pod reboot::a_late_agent", "pod reboot::pods_with_addresses_of_host_local"]),
    Boot::new(&["pod reboot::no_agent"]),
];
/// A node whose services start by themselves.
const RECOVERY: (Machine, &[Boot]) = (
    PAIRS[2],
    &[
        Boot::new(&["pod recovery::a_node"]),
        Boot::new(&["pod recovery::a_restart"]),
        Boot::new(&["pod recovery::a_second_one"]).cut(),
        Boot::new(&[
            "pod recovery::recordings",
            "pod recovery::a_power_cut",
            "pod recovery::the_agent_moves",
        ]),
        Boot::new(&["pod recovery::a_late_agent"]),
        Boot::new(&["pod recovery::a_second_late_one"]),
        Boot::new(&["pod recovery::a_boot_is_seen"]),
        Boot::new(&["pod recovery::a_boot_in_between"]),
    ],
);
/// The time to fetch a release, make a disk of it, and save a VM with a started containerd, under emulation.
const MAKING: Duration = Duration::from_secs(12 * 60);
/// The limit within the VM, which reports more about a timeout than we can. The longest takes 12 minutes
/// beside other work.
const LIMIT: Duration = Duration::from_secs(18 * 60);
/// The time of eight boots, five of which start all pods of a node.
const LIMIT_OF_RECOVERY: Duration = Duration::from_secs(25 * 60);
const MARGIN: Duration = Duration::from_secs(60);
/// The niceness of VMs: this machine's own tests, which wait for most of the time, go on at once when they
/// can.
const BELOW_OURS: u8 = 5;
/// Each VM has a disk and 1.5 GiB of memory.
const MAX_LANES: usize = 4;

/// The programs of one of several boots, and how the boot ends if it is not the last.
#[derive(Clone, Copy)]
struct Boot {
    programs: &'static [&'static str],
    /// The program of the VM that ends the boot.
    end: &'static str,
}

impl Boot {
    const fn new(programs: &'static [&'static str]) -> Self {
        Self { programs, end: "vm-reboot" }
    }

    /// Ends the boot by a loss of power.
    const fn cut(self) -> Self {
        Self { end: "vm-cut", ..self }
    }
}

impl Machine {
    const fn new(kernel: Kernel, runtime: Runtime, init: Init) -> Self {
        Self { arch: None, kernel, runtime, init }
    }

    const fn of(self, arch: Arch) -> Self {
        Self { arch: Some(arch), ..self }
    }
}

impl Run {
    fn saved(machine: Machine, name: &'static str, programs: &[&'static str]) -> Self {
        let boots = Boots::Saved(programs.to_vec());
        Self { machine, name, boots, limit: LIMIT, is_timed: false }
    }

    const fn fresh(machine: Machine, name: &'static str, boots: &'static [Boot]) -> Self {
        Self { machine, name, boots: Boots::Fresh(boots), limit: LIMIT, is_timed: false }
    }

    fn step(self, xtask: &Path) -> Step {
        let Self { machine, name, boots, limit, .. } = self;
        let (kind, script, runners) = match boots {
            Boots::Saved(programs) => ("--saved", script(&programs), programs.len()),
            Boots::Fresh(boots) => {
                let runners = boots.iter().map(|boot| boot.programs.len()).sum();
                ("--reboot", script_of_boots(boots), runners)
            }
        };
        let command = command(xtask, machine, kind, limit, &script);
        Step { name: format!("{machine}{name}"), command, limit: limit + MARGIN, runners, is_serial: true }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arch, kernel, runtime, init } = self;
        if let Some(arch) = arch {
            write!(f, "{arch}: ")?;
        }
        match init {
            Init::Quick => write!(f, "{kernel} with {runtime}"),
            Init::Systemd => write!(f, "{kernel} with {runtime} and systemd"),
        }
    }
}

/// Runs the tests in VMs, and at the same time this machine's own tests. Most of their time those wait for
/// something, so a VM runs on each processor all the same.
pub(super) fn tier(tier: &mut Tier, pods: Pods, here: Option<Step>) {
    let mut machines = match pods {
        Pods::None => vec![PAIRS[0]],
        Pods::Pairs => PAIRS.to_vec(),
        Pods::Matrix => {
            let mut machines = Vec::new();
            for kernel in Kernel::ALL {
                machines.extend(Runtime::ALL.map(|runtime| Machine::new(kernel, runtime, Init::Quick)));
            }
            machines.extend(PAIRS.into_iter().filter(|machine| machine.init == Init::Systemd));
            machines
        }
        Pods::Aarch64 => Vec::new(),
    };
    if matches!(pods, Pods::Matrix | Pods::Aarch64)
        && !Arch::Aarch64.is_ours()
        && has_programs(tier, Arch::Aarch64)
    {
        machines.push(AARCH64);
    }
    let xtask = env::current_exe().unwrap_or_else(|error| {
        tier.fail("virtual machines", &format!("cannot tell where xtask itself is: {error}"));
        machines.clear();
        PathBuf::new()
    });
    // The VMs are made in steps of their own, because the time of the tests is limited.
    let warm_ups = machines.iter().map(|&machine| Step {
        name: format!("{machine}: the VM"),
        command: command(&xtask, machine, "--saved", LIMIT, "uname -a"),
        limit: MAKING,
        runners: 0,
        is_serial: false,
    });
    let made = tier.lanes(warm_ups.collect(), lanes());
    let machines = machines.into_iter().zip(made).filter_map(|(machine, made)| made.then_some(machine));
    let (timed, mut others): (Vec<_>, Vec<_>) =
        machines.flat_map(|machine| runs(machine, pods)).partition(|run| run.is_timed);
    // If the longest run came last, the other lanes would be empty meanwhile.
    others.sort_by_key(|run| Reverse(run.limit));
    let others = others.into_iter().map(|run| run.step(&xtask).at_priority(BELOW_OURS)).collect();
    tier.queues(vec![
        Queue { steps: here.into_iter().collect(), lanes: 1 },
        Queue { steps: others, lanes: lanes() },
    ]);
    tier.lanes(timed.into_iter().map(|run| run.step(&xtask)).collect(), 1);
}

/// Builds the programs for VMs of this architecture, and counts a failure. Returns whether they are built.
fn has_programs(tier: &mut Tier, arch: Arch) -> bool {
    let setup = tier.attempt(&format!("{arch}: setup"), || vm::ensure(arch));
    let built = setup
        .and_then(|()| tier.attempt(&format!("{arch}: build"), || program::agent(arch, Profile::Release)));
    built
        .and_then(|()| {
            tier.attempt(&format!("{arch}: build tests"), || program::build_tests(arch, Profile::Release))
        })
        .is_some()
}

/// Returns how many VMs run at a time: each needs a core of its own.
fn lanes() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX_LANES)
}

/// Returns what runs on one machine.
fn runs(machine: Machine, pods: Pods) -> Vec<Run> {
    let is_end = ENDS.contains(&machine);
    let mut first = if is_end { vec![HOOKS, OF_ENDS] } else { vec![HOOKS] };
    let is_matrix = match pods {
        Pods::None => return vec![Run::saved(machine, "", &first)],
        Pods::Pairs => false,
        Pods::Matrix | Pods::Aarch64 => true,
    };
    first.push(PODS);
    let mut runs = vec![Run::saved(machine, "", &first)];
    if machine == DEPLOYED_ON[0] || (is_matrix && DEPLOYED_ON.contains(&machine)) {
        let deployed = if machine == AARCH64 { DEPLOYED_ACROSS } else { DEPLOYED };
        runs.push(Run::saved(machine, ": deployed", deployed));
    }
    if is_end || is_matrix {
        runs.push(Run::saved(machine, ": verdicts", VERDICTS));
    }
    if machine == ONCE || is_matrix {
        runs.push(Run::saved(machine, ": alone", ALONE));
    }
    if is_matrix {
        if !is_end {
            runs.push(Run::saved(machine, ": of ends", &[OF_ENDS]));
        }
        runs.push(Run::saved(machine, ": outputs", OUTPUTS));
        runs.push(Run::saved(machine, ": rest", REST));
        runs.push(Run::saved(machine, ": losses", LOSSES));
        runs.push(Run::saved(machine, ": no verdict", VERDICT_OF_NOTHING));
        if machine == ONCE {
            runs.push(Run::fresh(machine, ": reboots", REBOOTS));
            runs.push(Run::saved(machine, ": stories", STORIES));
            runs.push(Run { is_timed: true, ..Run::saved(machine, ": phases", PHASES) });
        }
    }
    if machine.init == Init::Systemd {
        runs.push(Run::saved(machine, ": unit", UNIT));
    }
    if machine == RECOVERY.0 {
        runs.push(Run { limit: LIMIT_OF_RECOVERY, ..Run::fresh(machine, ": recovery", RECOVERY.1) });
    }
    runs
}

/// Returns each program with the words that choose its tests, for all machines.
#[cfg(test)]
pub(super) fn lines() -> Vec<&'static str> {
    let machines = PAIRS.into_iter().chain([AARCH64]);
    let all =
        [Pods::Pairs, Pods::Matrix].map(|pods| machines.clone().flat_map(move |machine| runs(machine, pods)));
    let mut lines = Vec::new();
    for run in all.into_iter().flatten() {
        match run.boots {
            Boots::Saved(programs) => lines.extend(programs),
            Boots::Fresh(boots) => lines.extend(boots.iter().flat_map(|boot| boot.programs)),
        }
    }
    lines
}

/// Returns a script that has a case for each boot and ends all boots but the last. The closing lines of the
/// programs show the failures of a boot.
fn script_of_boots(boots: &[Boot]) -> String {
    let cases = boots.iter().zip(1..).map(|(Boot { programs, end }, boot)| {
        let script = script(programs);
        let all = if boot == boots.len() { script } else { format!("({script}); {end}") };
        format!("{boot}) {all} ;; ")
    });
    format!("case $BOOT in {}esac", cases.collect::<String>())
}

/// Returns a command that starts `xtask vm` as a program: if it hangs, it is ended like any other.
fn command(xtask: &Path, machine: Machine, kind: &str, limit: Duration, script: &str) -> Command {
    let Machine { arch, kernel, runtime, init } = machine;
    let mut command = Command::new(xtask);
    command.args(["vm", "--no-build", kind, "--init", init.name()]);
    command.args(arch.map(|arch| format!("--arch={arch}")));
    command.args(["--kernel", kernel.name(), "--runtime", runtime.name()]);
    command.arg(format!("--timeout={}", limit.as_secs())).args(["--", script]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tests of the same kernel, except those for which one machine is enough.
    #[test]
    fn aarch64_runs_the_same_tests() {
        let of = |machine| runs(machine, Pods::Matrix).into_iter().map(|run| run.name).collect::<Vec<_>>();
        let mut expected = of(ONCE);
        expected.retain(|name| ![": reboots", ": stories", ": phases"].contains(name));
        assert_eq!(of(AARCH64), expected);
    }

    #[test]
    fn each_architecture_is_asked_for_by_name() {
        let line = |machine| {
            let command = command(Path::new("xtask"), machine, "--saved", LIMIT, "true");
            let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert!(line(AARCH64).contains("--arch=aarch64 --kernel 6.12"), "{}", line(AARCH64));
        assert!(!line(ONCE).contains("--arch"), "{}", line(ONCE));
    }

    #[test]
    fn each_boot_has_its_programs() {
        let boots = [Boot::new(&["a", "b"]), Boot::new(&["c"]).cut(), Boot::new(&["d"])];
        let first =
            "(a --test-threads=1 || failed=1; b --test-threads=1 || failed=1; exit ${failed:-0}); vm-reboot";
        let second = "(c --test-threads=1 || failed=1; exit ${failed:-0}); vm-cut";
        let last = "d --test-threads=1 || failed=1; exit ${failed:-0}";
        assert_eq!(
            script_of_boots(&boots),
            format!("case $BOOT in 1) {first} ;; 2) {second} ;; 3) {last} ;; esac")
        );
    }
}
