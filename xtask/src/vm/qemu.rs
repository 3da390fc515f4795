//! How QEMU is started. The machine is the same for every VM, so that a saved VM fits the one that it is
//! restored into.

use crate::arch::Arch;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Memory for containerd and tens of pods. A saved VM is as large as the used part of it.
const MEMORY: &str = "1536";
const CPUS: &str = "2";

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accel {
    Kvm,
    Emulation,
}

impl Accel {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Emulation => "emulation",
        }
    }
}

/// The kernel, its initramfs and its command line.
pub(super) struct Boot<'a> {
    pub(super) arch: Arch,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Words of the kernel command line that choose among the guest's flavors.
    pub(super) choices: &'a str,
}

/// A disk, and what happens to the guest's writes.
#[derive(Clone, Copy)]
pub(super) enum Disk<'a> {
    Kept(&'a Path),
    ThrownAway(&'a Path),
}

/// Folders of the host that the guest sees over 9p.
pub(super) struct Shares<'a> {
    pub(super) modules: &'a Path,
    pub(super) bin: &'a Path,
    pub(super) host: &'a Path,
    /// This run's own folder: it has the command, and keeps what the command leaves there.
    pub(super) run: &'a Path,
}

/// The arguments of one start of QEMU.
pub(super) struct Machine<'a> {
    pub(super) accel: Accel,
    pub(super) boot: Boot<'a>,
    pub(super) disk: Disk<'a>,
    pub(super) shares: Shares<'a>,
    pub(super) console: &'a Path,
    pub(super) monitor: &'a Path,
    /// Waits for a saved VM instead of booting.
    pub(super) incoming: bool,
}

impl Machine<'_> {
    /// Returns the command that starts QEMU. Its standard input and output are the guest's port; QEMU's own
    /// messages go to `log`.
    pub(super) fn command(&self, log: Stdio) -> Command {
        let mut command = command(self.boot.arch);
        command.args(self.args()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        command
    }

    fn args(&self) -> Vec<OsString> {
        let mut args = bare(self.accel, &self.boot);
        push(&mut args, "-serial", with_path("file:", self.console));
        push(&mut args, "-qmp", with_path("unix:", self.monitor) + ",server=on,wait=off");
        let (disk, then) = match self.disk {
            Disk::Kept(path) => (path, ""),
            Disk::ThrownAway(path) => (path, ",snapshot=on"),
        };
        // "unsafe" loses data only if this machine crashes.
        push(&mut args, "-drive", with_path("file=", disk) + ",format=raw,if=virtio,cache=unsafe" + then);
        push(&mut args, "-device", "virtio-serial-pci");
        push(&mut args, "-chardev", "stdio,id=port,signal=off");
        push(&mut args, "-device", "virtserialport,chardev=port,name=session");
        for (tag, path, mode) in [
            ("modules", self.shares.modules, ",readonly=on"),
            ("bin", self.shares.bin, ",readonly=on"),
            ("host", self.shares.host, ""),
            ("run", self.shares.run, ""),
        ] {
            let share = with_path("local,path=", path);
            push(
                &mut args,
                "-virtfs",
                format!("{share},mount_tag={tag},security_model=none,multidevs=remap{mode}"),
            );
        }
        if self.incoming {
            push(&mut args, "-incoming", "defer");
        }
        args
    }
}

pub(super) const fn program(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "qemu-system-x86_64",
        Arch::Aarch64 => "qemu-system-aarch64",
    }
}

/// Returns a command that starts QEMU, and kills it when the thread that started it ends.
pub(super) fn command(arch: Arch) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program(arch)]);
    command
}

/// Returns the arguments for a machine without devices: enough for a kernel to report that it runs.
pub(super) fn bare(accel: Accel, boot: &Boot<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    for arg in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        args.push(arg.into());
    }
    push(&mut args, "-display", "none");
    let (machine, console, emulated) = match boot.arch {
        // A processor with few features takes a sixth less time to emulate than one with all of them. QEMU
        // 7.2 emulates cmpxchg16b such that guests crash in it under load. By this name, tests know that they
        // are emulated.
        Arch::X86_64 => ("pc", "ttyS0", "qemu64,-cx16,model-id=QEMU TCG CPU"),
        // Pointers are signed by a cipher that costs little to emulate. Features that a container never uses
        // are left out.
        Arch::Aarch64 => ("virt,gic-version=3", "ttyAMA0", "max,pauth-impdef=on,sve=off,sme=off"),
    };
    push(&mut args, "-machine", machine);
    match accel {
        Accel::Kvm => {
            push(&mut args, "-accel", "kvm");
            push(&mut args, "-cpu", "host");
        }
        Accel::Emulation => {
            // One thread for both CPUs: with one each, about one in twenty guests (6.1, QEMU 7.2) hung with
            // both CPUs in a soft lockup, probably because an interrupt between them was lost. One thread
            // costs an eighth of the time, and leaves the machine a core.
            push(&mut args, "-accel", "tcg,thread=single");
            push(&mut args, "-cpu", emulated);
        }
    }
    push(&mut args, "-smp", CPUS);
    push(&mut args, "-m", MEMORY);
    push(&mut args, "-kernel", boot.kernel);
    push(&mut args, "-initrd", boot.initramfs);
    // panic=-1: a panic ends the VM at once, since it may not reboot. Mitigations cost much under emulation.
    let line = format!("console={console} quiet panic=-1 mitigations=off audit=0 {}", boot.choices);
    push(&mut args, "-append", line.trim_end());
    args
}

/// Returns QEMU's version, with the distribution's build.
pub(super) fn version(arch: Arch) -> Result<String> {
    let program = program(arch);
    let out =
        Command::new(program).arg("--version").output().with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).lines().next().unwrap_or_default().to_owned())
}

fn push(args: &mut Vec<OsString>, name: &str, value: impl Into<OsString>) {
    args.push(name.into());
    args.push(value.into());
}

/// Returns the option with the path in it. A comma ends a value in QEMU's option lists; a doubled comma is a
/// literal one.
fn with_path(before: &str, path: &Path) -> String {
    before.to_owned() + &path.to_string_lossy().replace(',', ",,")
}

/// Refuses a path that is too long for a socket (fewer than 108 bytes are allowed) with a clear error.
pub(super) fn check_socket(path: PathBuf) -> Result<PathBuf> {
    anyhow::ensure!(
        path.as_os_str().len() < 108,
        "{} is too long a path for a socket: move the repository to a shorter one",
        path.display()
    );
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(accel: Accel, disk: Disk<'_>, incoming: bool) -> String {
        line_of(Arch::X86_64, accel, disk, incoming)
    }

    fn line_of(arch: Arch, accel: Accel, disk: Disk<'_>, incoming: bool) -> String {
        let path = Path::new;
        let boot = Boot { arch, kernel: path("/k"), initramfs: path("/i"), choices: "vm_init=quick" };
        let shares = Shares { modules: path("/m"), bin: path("/b"), host: path("/a,b"), run: path("/r") };
        let (console, monitor) = (path("/r/console"), path("/r/qmp"));
        let machine = Machine { accel, boot, disk, shares, console, monitor, incoming };
        machine.args().iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn emulation_goes_without_cmpxchg16b() {
        let line = line(Accel::Emulation, Disk::ThrownAway(Path::new("/d")), false);
        assert!(line.contains("-cpu qemu64,-cx16,model-id=QEMU TCG CPU "), "{line}");
        assert!(line.contains("file=/d,format=raw,if=virtio,cache=unsafe,snapshot=on"), "{line}");
        assert!(!line.contains("-incoming"), "{line}");
    }

    #[test]
    fn each_architecture_has_its_machine() {
        let line = line_of(Arch::Aarch64, Accel::Emulation, Disk::ThrownAway(Path::new("/d")), false);
        assert!(line.contains("-machine virt,"), "{line}");
        assert!(line.contains("-append console=ttyAMA0 "), "{line}");
        assert!(!line.contains("cx16"), "{line}");
        assert_eq!(program(Arch::Aarch64), "qemu-system-aarch64");
    }

    #[test]
    fn a_kept_disk_is_written() {
        let line = line(Accel::Kvm, Disk::Kept(Path::new("/d")), true);
        assert!(!line.contains("snapshot=on"), "{line}");
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
        assert!(line.ends_with("-incoming defer"), "{line}");
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        let line = line(Accel::Kvm, Disk::Kept(Path::new("/d")), false);
        assert!(line.contains("local,path=/a,,b,mount_tag=host"), "{line}");
    }
}
