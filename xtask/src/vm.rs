//! `cargo xtask vm`: runs a command in a virtual machine with a chosen kernel, container runtime and init.
//!
//! Everything comes from Debian: packages are fetched, made into a disk and an initramfs, and stored below
//! `target/vm`. Only the first run needs the network and root.

mod accel;
mod apt;
mod busybox;
mod choice;
mod cpio;
mod guest;
mod image;
mod initramfs;
mod kernel;
mod monitor;
mod port;
mod qemu;
mod rootfs;
mod saved;
mod session;
mod store;

pub(crate) use choice::{Init, Kernel, Runtime};

use crate::arch::Arch;
use crate::build::Profile;
use crate::package::{self, Need};
use crate::program;
use crate::toolchain;
use anyhow::{Result, ensure};
use choice::{Cgroup, Kernels};
use session::{End, Folder, Parts};
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The packages for making and running VMs of any architecture.
const NEEDS: &[Need] = &[
    Need::any(&["mmdebstrap"], "mmdebstrap"),
    Need::any(&["mke2fs"], "e2fsprogs"),
    Need::any(&["depmod"], "kmod"),
    Need::any(&["xz"], "xz-utils"),
    Need::any(&["setpriv"], "util-linux"),
];

/// The exit status if time was up, as in `timeout`.
const TIMED_OUT: u8 = 124;
/// The exit status if a VM ended without one.
const DIED: u8 = 125;

const fn emulator(arch: Arch) -> Need {
    match arch {
        Arch::X86_64 => Need::any(&["qemu-system-x86_64"], "qemu-system-x86"),
        Arch::Aarch64 => Need::any(&["qemu-system-aarch64"], "qemu-system-arm"),
    }
}

/// Installs the packages for making and running VMs of this architecture.
pub(crate) fn ensure(arch: Arch) -> Result<()> {
    package::ensure(NEEDS)?;
    package::ensure(&[emulator(arch)])
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The machine's architecture, instead of this machine's own: emulated, with programs that are built
    /// across
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// 5.10, 6.1, 6.12, 7.2 (the newest 7 there is), several with commas between, or all
    #[arg(long, default_value = "6.12")]
    kernel: Kernels,
    #[arg(long, value_enum, default_value_t = Runtime::Containerd2_1)]
    runtime: Runtime,
    #[arg(long, value_enum, default_value_t = Init::Quick)]
    init: Init,
    /// The hierarchies to mount; 5.10 and 6.1 have every controller in v1
    #[arg(long, value_enum, default_value_t = Cgroup::V2)]
    cgroup: Cgroup,
    /// A folder of this machine, to be /host in the VM
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Keep the disk in this file, made if it is not there
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Boot again when the command calls vm-reboot, or vm-cut to lose the power; BOOT counts from 1
    #[arg(long)]
    reboot: bool,
    /// Go on from a saved VM in which containerd runs, saving it first if there is none
    #[arg(long, conflicts_with_all = ["disk", "reboot"])]
    saved: bool,
    /// Boot (the default)
    #[arg(long, conflicts_with = "saved")]
    fresh: bool,
    /// Seconds, the boot included
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Take the programs in target/vm/bin as they are
    #[arg(long)]
    no_build: bool,
    /// One word is a line of shell; more are a program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// A command in a VM.
struct Request {
    arch: Arch,
    kernel: Kernel,
    runtime: Runtime,
    init: Init,
    cgroup: Cgroup,
    /// The guest's /host.
    share: Option<PathBuf>,
    /// Keep what the guest writes in this file, made if it is not there.
    disk: Option<PathBuf>,
    /// Boot again when the command calls `vm-reboot` or `vm-cut`.
    reboot: bool,
    /// Go on from a saved VM in which containerd runs.
    saved: bool,
    timeout: Duration,
    /// A shell script.
    command: String,
}

impl Request {
    /// Returns a request without systemd, on cgroup v2, with a disk that is thrown away. The caller sets the
    /// timeout.
    fn new(arch: Arch, kernel: Kernel, runtime: Runtime) -> Self {
        Self {
            arch,
            kernel,
            runtime,
            init: Init::Quick,
            cgroup: Cgroup::V2,
            share: None,
            disk: None,
            reboot: false,
            saved: false,
            timeout: Duration::ZERO,
            command: String::new(),
        }
    }

    /// Runs the command to its end and passes its output on as it comes. Missing parts of the VM are made
    /// first, which does not count towards the timeout.
    fn run(&self, output: &mut dyn FnMut(&[u8])) -> Result<Outcome> {
        let parts = Parts::get(self.arch, self.kernel)?;
        if self.saved {
            saved::get(self, &parts)?;
        }
        let folder = Folder::new()?;
        folder.give("command", &format!("{}\n", self.command))?;
        let start = Instant::now();
        let run = if self.saved { saved::run } else { session::run };
        let end = run(self, &parts, &folder, start + self.timeout, output)?;
        let (status, trouble) = match end {
            End::Status(status) => (status, None),
            End::TimedOut => {
                (TIMED_OUT, Some(format!("the VM was not done in {} s", self.timeout.as_secs())))
            }
            End::Died => (DIED, Some("the VM ended without a status".to_owned())),
            End::Rebooted => (DIED, Some("the command rebooted the VM: --reboot allows that".to_owned())),
        };
        Ok(Outcome {
            status,
            trouble: trouble.map(|trouble| format!("{trouble}; its console:\n{}", folder.last_words())),
            elapsed: start.elapsed(),
            release: parts.kernel.release,
            by: parts.accel.name(),
        })
    }
}

/// How a command in a VM ended.
struct Outcome {
    /// The command's own; 124 if time was up, 125 if the VM ended without one.
    status: u8,
    /// Why the status is not the command's, with the end of the console.
    trouble: Option<String>,
    elapsed: Duration,
    /// The kernel, as `uname -r` prints it.
    release: String,
    /// KVM or emulation.
    by: &'static str,
}

pub(crate) fn main(args: Args) -> Result<ExitCode> {
    if let Some(share) = &args.share {
        ensure!(share.is_dir(), "{} is no folder to share", share.display());
    }
    let arch = args.arch.map_or_else(Arch::ours, Ok)?;
    ensure!(
        arch.is_ours() || args.init == Init::Quick,
        "--init systemd needs a VM of this machine's own architecture: for {arch}, Debian's packages are only unpacked"
    );
    ensure(arch)?;
    if !args.no_build {
        toolchain::ensure()?;
        program::build(arch, Profile::Quick)?;
    }
    let mut worst = 0;
    for &kernel in &args.kernel.0 {
        // Each kernel runs, even if the one before it failed.
        let status = one(arch, kernel, &args).unwrap_or_else(|error| {
            say(format_args!("{kernel}: {error:#}"));
            DIED
        });
        worst = worst.max(status);
    }
    Ok(ExitCode::from(worst))
}

fn one(arch: Arch, kernel: Kernel, args: &Args) -> Result<u8> {
    let request = Request {
        init: args.init,
        cgroup: args.cgroup,
        share: args.share.clone(),
        disk: args.disk.clone(),
        reboot: args.reboot,
        saved: args.saved,
        timeout: Duration::from_secs(args.timeout),
        command: script(&args.command),
        ..Request::new(arch, kernel, args.runtime)
    };
    let outcome = request.run(&mut |bytes| {
        let mut stdout = std::io::stdout().lock();
        // Our reader may have gone; the command's status still counts.
        let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    })?;
    if let Some(trouble) = &outcome.trouble {
        say(format_args!("{trouble}"));
    }
    say(format_args!(
        "{} with {}, {}: status {} after {:.1} s",
        outcome.release,
        args.runtime,
        outcome.by,
        outcome.status,
        outcome.elapsed.as_secs_f64()
    ));
    Ok(outcome.status)
}

/// Returns the command as a line of shell. As with ssh, a single argument is such a line; several stay
/// separate.
fn script(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

/// Quotes one argument for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints a message for the user to standard error: only the guest's output goes to standard output.
fn say(words: fmt::Arguments<'_>) {
    eprintln!("vm: {words}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser as _, ValueEnum as _};

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"vm").chain(line)).map(|cli| cli.args)
    }

    #[test]
    fn the_command_follows_two_dashes() {
        let args =
            parse(&["--kernel", "5.10,7.2", "--runtime", "1.6", "--", "sandprobe", "doctor", "-o", "json"])
                .unwrap();
        assert_eq!(args.kernel.0, [Kernel::V5_10, Kernel::V7]);
        assert_eq!(args.runtime, Runtime::Containerd1_6);
        assert_eq!(args.command, ["sandprobe", "doctor", "-o", "json"]);
        assert!(parse(&["--kernel", "6.1"]).is_err());
        assert!(parse(&["--kernel", "3.2", "--", "true"]).is_err());
    }

    #[test]
    fn the_architecture_is_this_machines_or_another() {
        let arch = |line: &[&str]| parse(line).map(|args| args.arch);
        assert_eq!(arch(&["--", "true"]).unwrap(), None);
        assert_eq!(arch(&["--arch", "aarch64", "--", "true"]).unwrap(), Some(Arch::Aarch64));
        assert!(arch(&["--arch", "riscv64", "--", "true"]).is_err());
    }

    /// For systemd, the packages' scripts would have to have run.
    #[test]
    fn another_architecture_has_no_systemd() {
        let [other] = Arch::value_variants().iter().filter(|arch| !arch.is_ours()).collect::<Vec<_>>()[..]
        else {
            panic!("more than one")
        };
        let error = main(parse(&["--arch", other.name(), "--init", "systemd", "--", "true"]).unwrap());
        assert!(error.unwrap_err().to_string().starts_with("--init systemd"));
    }

    /// A saved VM has its own disk and its own past.
    #[test]
    fn saved_and_kept_exclude_each_other() {
        assert!(parse(&["--saved", "--disk", "x", "--", "true"]).is_err());
        assert!(parse(&["--saved", "--reboot", "--", "true"]).is_err());
        assert!(parse(&["--saved", "--fresh", "--", "true"]).is_err());
        assert!(parse(&["--disk", "x", "--reboot", "--", "true"]).is_ok());
    }

    #[test]
    fn words_stay_words() {
        let script =
            |words: &[&str]| script(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(script(&["cat /proc/version | wc -l"]), "cat /proc/version | wc -l");
        assert_eq!(script(&["echo", "it's", "a  b"]), r"'echo' 'it'\''s' 'a  b'");
    }
}
