//! The privileged tests in virtual machines, a kernel each.

use super::report::Tier;
use crate::vm::{Init, Kernel, Runtime};
use std::env;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Which kernels run pods, and of which containerd.
#[derive(Clone, Copy)]
pub(super) enum Pods {
    None,
    Pairs,
    Matrix,
}

/// A kernel and what runs on it; the init decides on the cgroup driver too.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Machine {
    kernel: Kernel,
    runtime: Runtime,
    init: Init,
}

/// How a VM comes up.
#[derive(Clone, Copy)]
enum Kind {
    /// From one that was saved with its containerd running.
    Saved,
    /// From nothing, as often as its command reboots it.
    Rebooted,
}

/// Each kernel with a containerd of its own time, and one of them with systemd.
const PAIRS: [Machine; 4] = [
    Machine::new(Kernel::V5_10, Runtime::Containerd1_6, Init::Quick),
    Machine::new(Kernel::V6_1, Runtime::Containerd1_7, Init::Systemd),
    Machine::new(Kernel::V6_12, Runtime::Containerd2_1, Init::Quick),
    Machine::new(Kernel::V7, Runtime::Containerd2_1, Init::Quick),
];
/// What runs in each VM.
const KERNEL: &[&str] = &["kernel"];
/// The same, with pods. A storm of programs belongs on this machine's own kernel: under emulation one costs a hundred
/// times as much.
const PODS: &[&str] = &[
    "kernel",
    "pod --skip story:: --skip verdict:: --skip storm:: --skip reboot:: --skip phase:: --skip recovery::",
];
/// Of the oldest kernel and of the newest; in the matrix of all. From a saved state of its own.
const VERDICTS: &[&str] = &["pod verdict::a_sandbox verdict::with_host_local"];
const ENDS: [Machine; 2] = [PAIRS[0], PAIRS[3]];
/// What is of one kernel and one runtime as of any other, on one of them.
const ONCE: (Machine, [&[&str]; 2]) =
    (PAIRS[2], [&["pod verdict::healthy verdict::losses"], &["pod phase::phases_are"]]);
/// Every story by itself: they are the harness's own affair, and run on this machine as well.
const STORIES: &[&str] = &["pod story::"];
/// Of pods that run while the node goes down: what runs in each boot, there too.
const BOOTS: &[Boot] = &[
    Boot::new(&["pod reboot::pods_with_keyed_addresses"]),
    Boot::new(&["pod reboot::an_early_agent", "pod reboot::pods_with_keyed_addresses"]),
    Boot::new(&["pod reboot::a_late_agent", "pod reboot::pods_with_addresses_of_host_local"]),
    Boot::new(&["pod reboot::no_agent"]),
];
/// Of a node that comes up by itself, on the machine whose services do that: each boot is timed.
const RECOVERY: (Machine, &[Boot]) = (
    PAIRS[1],
    &[
        Boot::new(&["pod recovery::a_node"]),
        Boot::new(&["pod recovery::a_restart"]),
        Boot::new(&["pod recovery::a_second_one"]).cut(),
        Boot::new(&["pod recovery::recordings", "pod recovery::a_power_cut"]),
    ],
);
/// Fetching a release, making a disk of it, and saving a VM that has started its containerd, under emulation.
const MAKING: Duration = Duration::from_secs(12 * 60);
/// For the VM itself, which tells more of its end than we can.
const LIMIT: Duration = Duration::from_secs(12 * 60);
const MARGIN: Duration = Duration::from_secs(60);

/// What runs in one boot of several, and how that ends if it is not the last.
#[derive(Clone, Copy)]
struct Boot {
    programs: &'static [&'static str],
    /// A program of the VM.
    end: &'static str,
}

impl Boot {
    const fn new(programs: &'static [&'static str]) -> Self {
        Self { programs, end: "vm-reboot" }
    }

    /// By a loss of power.
    const fn cut(self) -> Self {
        Self { end: "vm-cut", ..self }
    }
}

impl Machine {
    const fn new(kernel: Kernel, runtime: Runtime, init: Init) -> Self {
        Self { kernel, runtime, init }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, runtime, init } = self;
        match init {
            Init::Quick => write!(f, "{kernel} with {runtime}"),
            Init::Systemd => write!(f, "{kernel} with {runtime} and systemd"),
        }
    }
}

pub(super) fn tier(tier: &mut Tier, pods: Pods) {
    let machines = match pods {
        Pods::None | Pods::Pairs => PAIRS.to_vec(),
        Pods::Matrix => {
            let all = |kernel| Runtime::ALL.map(|runtime| Machine::new(kernel, runtime, Init::Quick));
            let with_systemd = PAIRS.into_iter().filter(|machine| machine.init == Init::Systemd);
            Kernel::ALL.into_iter().flat_map(all).chain(with_systemd).collect()
        }
    };
    let xtask = match env::current_exe() {
        Ok(xtask) => xtask,
        Err(error) => {
            tier.fail("virtual machines", &format!("cannot tell where xtask itself is: {error}"));
            return;
        }
    };
    for machine in machines {
        // Made apart from the tests, whose time is limited.
        let mut warm = vm(&xtask, machine, Kind::Saved, "uname -a");
        if tier.check(&format!("{machine}: the VM"), &mut warm, MAKING) {
            let is_once = machine == ONCE.0 && !matches!(pods, Pods::None);
            let once = is_once.then_some(ONCE.1);
            let stories = (machine == ONCE.0 && matches!(pods, Pods::Matrix)).then_some(STORIES);
            let (first, verdicts) = match pods {
                Pods::None => (KERNEL, None),
                Pods::Pairs => (PODS, ENDS.contains(&machine).then_some(VERDICTS)),
                Pods::Matrix => (PODS, Some(VERDICTS)),
            };
            let runs = [first].into_iter().chain(verdicts).chain(once.into_iter().flatten()).chain(stories);
            for programs in runs {
                let mut command = vm(&xtask, machine, Kind::Saved, &script(programs));
                tier.tests(&machine.to_string(), &mut command, LIMIT + MARGIN, programs.len());
            }
            let rebooted = [("reboots", ONCE.0, BOOTS), ("recovery", RECOVERY.0, RECOVERY.1)];
            let rebooted = rebooted.into_iter().filter(|(_, of, _)| *of == machine);
            for (name, _, boots) in rebooted.filter(|_| !matches!(pods, Pods::None)) {
                let mut command = vm(&xtask, machine, Kind::Rebooted, &script_of_boots(boots));
                let runners = boots.iter().map(|boot| boot.programs.len()).sum();
                tier.tests(&format!("{machine}: {name}"), &mut command, LIMIT + MARGIN, runners);
            }
        }
    }
}

/// A script for each boot, and its end after each but the last. What failed in one is known by the closing lines of
/// its programs.
fn script_of_boots(boots: &[Boot]) -> String {
    let cases = boots.iter().zip(1..).map(|(Boot { programs, end }, boot)| {
        let script = script(programs);
        let all = if boot == boots.len() { script } else { format!("({script}); {end}") };
        format!("{boot}) {all} ;; ")
    });
    format!("case $BOOT in {}esac", cases.collect::<String>())
}

/// Each of the programs runs, whatever became of the one before.
fn script(programs: &[&str]) -> String {
    let run = |program: &&str| format!("{program} --test-threads=1 || failed=1; ");
    format!("{}exit ${{failed:-0}}", programs.iter().map(run).collect::<String>())
}

/// Our own verb: what hangs in there is ended like any other command.
fn vm(xtask: &Path, Machine { kernel, runtime, init }: Machine, kind: Kind, script: &str) -> Command {
    let mut command = Command::new(xtask);
    let kind = match kind {
        Kind::Saved => "--saved",
        Kind::Rebooted => "--reboot",
    };
    command.args(["vm", "--no-build", kind, "--init", init.name()]);
    command.args(["--kernel", kernel.name(), "--runtime", runtime.name()]);
    command.arg(format!("--timeout={}", LIMIT.as_secs())).args(["--", script]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

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
