//! Limits the files that the calling thread can open, by landlock(7).
//!
//! It is not used for the threads that read the node. A thread in a Landlock domain cannot inspect processes
//! outside of it (`hook_ptrace_access_check`), whatever its capabilities, so `exe`, `ns` and `environ` in
//! `/proc` would be closed to it. seccomp(2) and missing capabilities limit those threads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, RestrictionStatus,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};

use super::{ConfineError, Later, Needs, Remote, State, role::Role};

/// The newest set of rights. The kernel applies those that it knows.
const NEWEST: ABI = ABI::V9;
/// The number of CPUs is read from here with the counters.
const CPUS: &str = "/sys/devices/system/cpu";
/// The process's own files in `/proc`.
const SELF: &str = "/proc/self";

/// From these files the C library finds the address of a name.
const NAMES: [&str; 6] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
];
/// The port of name servers.
const DNS: u16 = 53;

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const KEEP: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile});

/// Taking the path of a socket: asking whether somebody listens there, and renaming another one.
const TAKE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{RemoveFile | MakeSock | ResolveUnix});

/// Restricts the calling thread to the files of its role, from now on.
pub(super) fn enter(role: Role, needs: &Needs) -> Result<State, ConfineError> {
    let state_dir = needs.state_dir.as_deref().into_iter();
    let own = [CPUS, SELF].map(Path::new).into_iter();
    let resolver = resolver();
    let mut ports = Vec::new();
    let mut own_port = None;
    let rules: Vec<(&Path, BitFlags<AccessFs>)> = match role {
        Role::Netlink | Role::Files => return Ok(State::Full),
        Role::Store => state_dir.map(|dir| (dir, KEEP)).collect(),
        Role::Log => needs.log_dir.as_deref().into_iter().map(|dir| (dir, KEEP)).collect(),
        Role::Writer => Vec::new(),
        Role::Export => {
            ports.extend(needs.export_port.into_iter().chain([DNS]));
            names(resolver.as_deref()).collect()
        }
        Role::Kubernetes => {
            let Remote { port, dirs } = &needs.kubernetes;
            ports.extend([*port, DNS]);
            names(resolver.as_deref()).chain(dirs.iter().map(|dir| (dir.as_path(), READ))).collect()
        }
        Role::Agent => own.chain(state_dir).map(|path| (path, READ)).collect(),
        Role::Server => {
            let socket = needs.socket.as_deref().and_then(Path::parent);
            let Later { port, socket: takes } = needs.later;
            own_port = port;
            let access = if takes { TAKE } else { AccessFs::RemoveFile.into() };
            let removed = socket.map(|dir| (dir, access));
            own.chain(state_dir).map(|path| (path, READ)).chain(removed).collect()
        }
    };
    let ports = ports.into_iter().map(|port| (port, AccessNet::ConnectTcp));
    restrict(&rules, ports.chain(own_port.map(|port| (port, AccessNet::BindTcp))))
        .map(|status| state(&status))
        .map_err(|why| ConfineError::new("confine to files", why))
}

fn names(resolver: Option<&Path>) -> impl Iterator<Item = (&Path, BitFlags<AccessFs>)> {
    let files = NAMES.map(Path::new).into_iter().chain(resolver);
    files.map(|path| (path, BitFlags::from(AccessFs::ReadFile)))
}

/// Returns the folder of the resolver's file, if the file is a link elsewhere: the daemon that owns the
/// folder replaces the file.
fn resolver() -> Option<PathBuf> {
    let file = fs::canonicalize("/etc/resolv.conf").ok()?;
    file.parent().filter(|dir| !["/", "/etc", "/run"].map(Path::new).contains(dir)).map(Path::to_owned)
}

fn restrict(
    rules: &[(&Path, BitFlags<AccessFs>)],
    ports: impl Iterator<Item = (u16, AccessNet)>,
) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (path, access) in rules {
        // A file that does not exist needs no rule. `landlock::PathFd` would open a fifo and wait for its
        // other end: with musl, the standard library takes O_PATH for the access mode and leaves it out.
        if let Ok(fd) = open(*path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
            ruleset = ruleset.add_rule(PathBeneath::new(fd, *access))?;
        }
    }
    for (port, access) in ports {
        ruleset = ruleset.add_rule(NetPort::new(port, access))?;
    }
    ruleset.restrict_self()
}

fn state(status: &RestrictionStatus) -> State {
    match (&status.ruleset, &status.landlock) {
        (RulesetStatus::FullyEnforced, _) => State::Full,
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            State::Part(format!("Landlock ABI {}", *effective_abi as i32))
        }
        (_, LandlockStatus::NotEnabled) => State::Absent("Landlock is not enabled (lsm= at boot)".to_owned()),
        (_, _) => State::Absent("this kernel has no Landlock".to_owned()),
    }
}
