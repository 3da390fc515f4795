//! The operations of each confined role. Processes that are confined like the agent try each operation.

use std::{
    env,
    fs::{self, File},
    io,
    net::{Ipv4Addr, TcpStream, UdpSocket},
    os::unix::{net::UnixStream, process::ExitStatusExt as _},
    path::Path,
    process::{self, Command, ExitStatus, Stdio},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    errno::Errno,
    fcntl::{self, OFlag},
    libc,
    sched::{self, CloneFlags},
    sys::stat::Mode as Bits,
    unistd,
};
use probe_user::confine::{Confinement, Mode, Needs, Remote, refusal, role::Role};
use tests::machine;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    time,
};

use super::has_landlock;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Read,
    ReadState,
    /// Finds a path without opening it (`O_PATH`), as the agent finds every file of the node.
    FindPath,
    /// Reads a link in `/proc` that needs the right to trace the process.
    ReadNetns,
    Write,
    WriteState,
    Bind,
    /// Reads a file in which names have addresses.
    ReadNames,
    /// Connects to the receiver's port, where nobody listens.
    Reach,
    /// Connects to another port.
    ReachOther,
    /// Connects to a socket of this machine.
    ReachLocal,
    Signal,
    /// Looks a key up in a BPF map.
    BpfLookup,
    /// Makes memory that can be executed.
    ExecutableMemory,
    Thread,
    /// Receives a signal that goes to the whole process.
    ReceiveSignal,
    Exec,
    Unshare,
    /// Panics in a program that does not unwind.
    Panic,
}

const OPERATIONS: [Operation; 19] = [
    Operation::Read,
    Operation::ReadState,
    Operation::FindPath,
    Operation::ReadNetns,
    Operation::Write,
    Operation::WriteState,
    Operation::Bind,
    Operation::ReadNames,
    Operation::Reach,
    Operation::ReachOther,
    Operation::ReachLocal,
    Operation::Signal,
    Operation::BpfLookup,
    Operation::ExecutableMemory,
    Operation::Thread,
    Operation::ReceiveSignal,
    Operation::Exec,
    Operation::Unshare,
    Operation::Panic,
];

/// The exit status of the process that tried it.
const DONE: i32 = 40;
const REFUSED: i32 = 41;

impl Operation {
    fn name(self) -> String {
        format!("{self:?}")
    }

    fn attempt(self, dir: &Path) -> io::Result<()> {
        match self {
            Self::Read => File::open("/etc/hostname").map(drop),
            Self::ReadState => File::open(dir.join("kept")).map(drop),
            Self::FindPath => {
                Ok(fcntl::open("/etc", OFlag::O_PATH | OFlag::O_NOFOLLOW, Bits::empty()).map(drop)?)
            }
            Self::ReadNetns => {
                // The parent has every capability, so to read its link takes the capability to trace.
                let parent = env::var(PARENT).map_err(io::Error::other)?;
                let link = fcntl::readlink(format!("/proc/{parent}/ns/net").as_str())?;
                // Kernel 5.10 returns an empty link to a process without that right.
                if link.is_empty() { Err(Errno::EACCES.into()) } else { Ok(()) }
            }
            Self::Write => File::create(dir.with_extension("other")).map(drop),
            Self::WriteState => {
                fs::write(dir.join("new"), "x")?;
                fs::rename(dir.join("new"), dir.join("kept"))
            }
            Self::Bind => UdpSocket::bind("127.0.0.1:0").map(drop),
            Self::ReadNames => File::open("/etc/hosts").map(drop),
            Self::Reach => reach(RECEIVER),
            Self::ReachOther => reach(RECEIVER + 1),
            Self::ReachLocal => match UnixStream::connect(dir.join("no-socket")) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                // The call is hidden.
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Err(Errno::EPERM.into()),
                connected => connected.map(drop),
            },
            // SAFETY: signal 0 has no effect on its target.
            Self::Signal => refused(unsafe { libc::kill(1, 0) }.into()),
            // SAFETY: the lookup gets no attributes. The kernel refuses it as invalid.
            Self::BpfLookup => refused(unsafe { libc::syscall(libc::SYS_bpf, 1, 0, 0) }),
            Self::ExecutableMemory => {
                let (access, flags) =
                    (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                // SAFETY: a new mapping that nobody uses. Not by mmap(3), because musl's function replaces
                // EPERM with another error.
                refused(unsafe { libc::syscall(libc::SYS_mmap, 0, 4096, access, flags, -1, 0) })
            }
            Self::Thread => thread::Builder::new().spawn(|| ()).map(drop),
            // SAFETY: a handler receives the signal.
            Self::ReceiveSignal => refused(unsafe {
                libc::syscall(libc::SYS_tgkill, process::id(), unistd::gettid().as_raw(), libc::SIGTERM)
            }),
            Self::Exec => Ok(unistd::execv(c"/bin/true", &[c"true"]).map(drop)?),
            Self::Panic => {
                // The agent aborts after a panic in the same way.
                refusal::abort_by_panic();
                panic!("the panic that this operation makes")
            }
            Self::Unshare => Ok(sched::unshare(CloneFlags::CLONE_FS)?),
        }
    }

    /// Whether this role can do it. `anywhere`: the kernel lacks Landlock, so every file can be opened.
    fn is_for(self, role: Role, anywhere: bool) -> bool {
        let reaches = matches!(role, Role::Export | Role::Kubernetes);
        // Landlock has it since then.
        let confines_tcp = machine::kernel().is_ok_and(|kernel| kernel >= (6, 7));
        match self {
            Self::Read => matches!(role, Role::Netlink | Role::Files) || anywhere && role != Role::Writer,
            Self::ReadState => role != Role::Writer && (anywhere || !reaches),
            // Nothing is opened, so Landlock does not refuse it.
            Self::FindPath => role != Role::Writer,
            Self::ReadNames => Self::Read.is_for(role, anywhere) || reaches,
            Self::Bind | Self::Reach => reaches,
            Self::ReachOther => reaches && (anywhere || !confines_tcp),
            Self::ReachLocal => role == Role::Files,
            Self::ReadNetns => matches!(role, Role::Netlink | Role::Files),
            Self::Write => anywhere && matches!(role, Role::Store | Role::Log),
            Self::WriteState => matches!(role, Role::Store | Role::Log),
            Self::BpfLookup => role == Role::Agent,
            Self::Thread | Self::ReceiveSignal => true,
            Self::Signal | Self::ExecutableMemory | Self::Exec | Self::Unshare | Self::Panic => false,
        }
    }

    /// Returns the signal by which the operation ends the process, if it does.
    fn is_fatal(self) -> Option<i32> {
        match self {
            Self::Exec | Self::Unshare => Some(libc::SIGSYS),
            Self::Panic => Some(libc::SIGABRT),
            _ => None,
        }
    }
}

/// Returns the result of a system call: an error only if it was refused.
fn refused(returned: i64) -> io::Result<()> {
    if returned == -1 && Errno::last() == Errno::EPERM { Err(Errno::EPERM.into()) } else { Ok(()) }
}

/// The port of the receiver: discard(9), which nobody serves.
const RECEIVER: u16 = 9;

/// Connects to a port of this machine where nobody listens.
fn reach(port: u16) -> io::Result<()> {
    match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        connected => connected.map(drop),
    }
}

const ROLE: &str = "SANDPROBE_TEST_ROLE";
const OPERATION: &str = "SANDPROBE_TEST_DEED";
const DIR: &str = "SANDPROBE_TEST_DIR";
const PARENT: &str = "SANDPROBE_TEST_PARENT";

/// Each attempt runs in a process of its own, which is this test started again. Rights that are given up
/// cannot be taken back.
#[test]
fn a_thread_can_do_what_its_role_does_and_nothing_else() -> Result<()> {
    if let (Some(role), Some(operation), Some(dir)) =
        (env::var_os(ROLE), env::var_os(OPERATION), env::var_os(DIR))
    {
        let role = Role::ALL.into_iter().find(|it| it.as_str() == role).context("a role")?;
        let operation =
            OPERATIONS.into_iter().find(|it| operation == it.name().as_str()).context("an operation")?;
        process::exit(confined(role, operation, Path::new(&dir))?);
    }
    let outer = tempfile::tempdir()?;
    let dir = outer.path().join("state");
    fs::create_dir(&dir)?;
    fs::write(dir.join("kept"), "x")?;
    let anywhere = !has_landlock()?;
    for (role, operation) in
        Role::ALL.into_iter().flat_map(|role| OPERATIONS.map(|operation| (role, operation)))
    {
        let (ended, said) = attempt_in_a_process(role, operation, &dir)?;
        let expected = if operation.is_for(role, anywhere) { DONE } else { REFUSED };
        let is_expected = match operation.is_fatal() {
            Some(signal) => ended.signal() == Some(signal),
            None => ended.code() == Some(expected),
        };
        ensure!(is_expected, "{} {operation:?}: {ended}: {said}", role.as_str());
    }
    Ok(())
}

/// How the process ended, and its standard error.
fn attempt_in_a_process(role: Role, operation: Operation, dir: &Path) -> Result<(ExitStatus, String)> {
    let thread = thread::current();
    let name = thread.name().context("the test's thread has a name")?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", name, "--nocapture", "--quiet"]).stdout(Stdio::null());
    command.env(ROLE, role.as_str()).env(OPERATION, operation.name()).env(DIR, dir);
    let ended = command.env(PARENT, process::id().to_string()).output()?;
    Ok((ended.status, String::from_utf8_lossy(&ended.stderr).into_owned()))
}

fn confined(role: Role, operation: Operation, dir: &Path) -> Result<i32> {
    // The agent receives signals in this way too, among them the one of a refusal.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let receive = |kind| runtime.block_on(async { signal(kind) });
    let mut terminate = receive(SignalKind::terminate())?;
    let kept = || Some(dir.to_owned());
    let needs = Needs {
        state_dir: kept(),
        log_dir: kept(),
        export_port: Some(RECEIVER),
        socket: None,
        netlink: true,
        kubernetes: Remote { port: RECEIVER, dirs: Vec::new() },
        ..Needs::default()
    };
    let confinement = Confinement::begin(Mode::Full, needs, || Operation::BpfLookup.attempt(dir).is_ok())?;
    let _refusals = receive(SignalKind::from_raw(refusal::SIGNAL))?;
    let done = confinement.start(role, || operation.attempt(dir))?;
    if operation == Operation::ReceiveSignal {
        runtime.block_on(async { time::timeout(machine::patience(), terminate.recv()).await })?;
    }
    let calls: Vec<usize> = refusal::untold().into_iter().map(|(call, _)| call).collect();
    match done {
        // An operation that succeeds must not use a system call that is refused and replaced.
        Ok(()) if calls.is_empty() => Ok(DONE),
        Ok(()) => Err(anyhow!("it could do {operation:?} though refused calls {calls:?}")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let call = usize::try_from(libc::SYS_kill)?;
            ensure!(
                operation != Operation::Signal || calls == [call] && refusal::count() == 1,
                "not noted: {calls:?}"
            );
            Ok(REFUSED)
        }
        Err(error) => Err(error.into()),
    }
}
