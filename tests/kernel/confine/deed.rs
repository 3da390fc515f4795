//! What each role can do, and what is refused to it: tried, in processes that are confined like the agent.

use std::{
    env,
    fs::{self, File},
    io,
    net::UdpSocket,
    os::unix::process::ExitStatusExt as _,
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
use probe_user::confine::{Confinement, Mode, Needs, refusal, role::Role};
use tests::machine;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    time,
};

use super::has_landlock;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Read,
    ReadState,
    /// Finds a place without opening it (`O_PATH`), as every file of the node is found.
    Find,
    /// Looks at what only who may trace a process sees of it.
    Look,
    Write,
    WriteState,
    Bind,
    Signal,
    Map,
    /// Makes memory that can be executed.
    Code,
    Thread,
    /// Hears a signal, which is for the whole process.
    Hear,
    Exec,
    Unshare,
    /// Panics in a program that does not unwind.
    Panic,
}

const DEEDS: [Deed; 15] = [
    Deed::Read,
    Deed::ReadState,
    Deed::Find,
    Deed::Look,
    Deed::Write,
    Deed::WriteState,
    Deed::Bind,
    Deed::Signal,
    Deed::Map,
    Deed::Code,
    Deed::Thread,
    Deed::Hear,
    Deed::Exec,
    Deed::Unshare,
    Deed::Panic,
];

/// How the process that did it tells what came of it.
const DONE: i32 = 40;
const REFUSED: i32 = 41;

impl Deed {
    fn name(self) -> String {
        format!("{self:?}")
    }

    fn attempt(self, dir: &Path) -> io::Result<()> {
        match self {
            Self::Read => File::open("/etc/hostname").map(drop),
            Self::ReadState => File::open(dir.join("kept")).map(drop),
            Self::Find => {
                Ok(fcntl::open("/etc", OFlag::O_PATH | OFlag::O_NOFOLLOW, Bits::empty()).map(drop)?)
            }
            Self::Look => {
                // Which has every capability: to look at it takes the one to trace.
                let parent = env::var(PARENT).map_err(io::Error::other)?;
                let link = fcntl::readlink(format!("/proc/{parent}/ns/net").as_str())?;
                // 5.10 gives an empty one to who may not look.
                if link.is_empty() { Err(Errno::EACCES.into()) } else { Ok(()) }
            }
            Self::Write => File::create(dir.with_extension("other")).map(drop),
            Self::WriteState => {
                fs::write(dir.join("new"), "x")?;
                fs::rename(dir.join("new"), dir.join("kept"))
            }
            Self::Bind => UdpSocket::bind("127.0.0.1:0").map(drop),
            // SAFETY: signal 0 does nothing to whom it is sent.
            Self::Signal => refused(unsafe { libc::kill(1, 0) }.into()),
            // SAFETY: the attributes of a lookup, none of them given: the kernel finds fault with that.
            Self::Map => refused(unsafe { libc::syscall(libc::SYS_bpf, 1, 0, 0) }),
            Self::Code => {
                let (access, flags) =
                    (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                // SAFETY: memory of its own that nobody uses. Not by mmap(3): musl's has other words for EPERM.
                refused(unsafe { libc::syscall(libc::SYS_mmap, 0, 4096, access, flags, -1, 0) })
            }
            Self::Thread => thread::Builder::new().spawn(|| ()).map(drop),
            // SAFETY: it is heard by a handler.
            Self::Hear => refused(unsafe {
                libc::syscall(libc::SYS_tgkill, process::id(), unistd::gettid().as_raw(), libc::SIGTERM)
            }),
            Self::Exec => Ok(unistd::execv(c"/bin/true", &[c"true"]).map(drop)?),
            Self::Panic => {
                // As where it is aborted by.
                refusal::abort_by_panic();
                panic!("as it is wanted")
            }
            Self::Unshare => Ok(sched::unshare(CloneFlags::CLONE_FS)?),
        }
    }

    /// Whether this role can do it; `anywhere`: a kernel without Landlock confines nobody to some files.
    fn is_for(self, role: Role, anywhere: bool) -> bool {
        match self {
            Self::Read => matches!(role, Role::Netlink | Role::Files) || anywhere && role != Role::Writer,
            // Not even Landlock minds: nothing is opened.
            Self::ReadState | Self::Find => role != Role::Writer,
            Self::Look => matches!(role, Role::Netlink | Role::Files),
            Self::Write => anywhere && role == Role::Store,
            Self::WriteState => role == Role::Store,
            Self::Map => role == Role::Agent,
            Self::Thread | Self::Hear => true,
            Self::Bind | Self::Signal | Self::Code | Self::Exec | Self::Unshare | Self::Panic => false,
        }
    }

    /// It ends the process, by this signal.
    fn is_fatal(self) -> Option<i32> {
        match self {
            Self::Exec | Self::Unshare => Some(libc::SIGSYS),
            Self::Panic => Some(libc::SIGABRT),
            _ => None,
        }
    }
}

/// What a call gives back, as far as it was let through.
fn refused(returned: i64) -> io::Result<()> {
    if returned == -1 && Errno::last() == Errno::EPERM { Err(Errno::EPERM.into()) } else { Ok(()) }
}

const ROLE: &str = "SANDPROBE_TEST_ROLE";
const DEED: &str = "SANDPROBE_TEST_DEED";
const DIR: &str = "SANDPROBE_TEST_DIR";
const PARENT: &str = "SANDPROBE_TEST_PARENT";

/// In processes of their own, which are this test again: what is given up is given up for good.
#[test]
fn a_thread_can_do_what_its_role_does_and_nothing_else() -> Result<()> {
    if let (Some(role), Some(deed), Some(dir)) = (env::var_os(ROLE), env::var_os(DEED), env::var_os(DIR)) {
        let role = Role::ALL.into_iter().find(|it| it.as_str() == role).context("a role")?;
        let deed = DEEDS.into_iter().find(|it| deed == it.name().as_str()).context("a deed")?;
        process::exit(confined(role, deed, Path::new(&dir))?);
    }
    let outer = tempfile::tempdir()?;
    let dir = outer.path().join("state");
    fs::create_dir(&dir)?;
    fs::write(dir.join("kept"), "x")?;
    let anywhere = !has_landlock()?;
    for (role, deed) in Role::ALL.into_iter().flat_map(|role| DEEDS.map(|deed| (role, deed))) {
        let (ended, said) = again(role, deed, &dir)?;
        let expected = if deed.is_for(role, anywhere) { DONE } else { REFUSED };
        let is_expected = match deed.is_fatal() {
            Some(signal) => ended.signal() == Some(signal),
            None => ended.code() == Some(expected),
        };
        ensure!(is_expected, "{} {deed:?}: {ended}: {said}", role.as_str());
    }
    Ok(())
}

/// How it ended, and what it said of errors.
fn again(role: Role, deed: Deed, dir: &Path) -> Result<(ExitStatus, String)> {
    let thread = thread::current();
    let name = thread.name().context("a test's thread has its name")?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", name, "--nocapture", "--quiet"]).stdout(Stdio::null());
    command.env(ROLE, role.as_str()).env(DEED, deed.name()).env(DIR, dir);
    let ended = command.env(PARENT, process::id().to_string()).output()?;
    Ok((ended.status, String::from_utf8_lossy(&ended.stderr).into_owned()))
}

fn confined(role: Role, deed: Deed, dir: &Path) -> Result<i32> {
    // As the agent hears signals, that of a refusal among them.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let hear = |kind| runtime.block_on(async { signal(kind) });
    let mut terminate = hear(SignalKind::terminate())?;
    let needs = Needs { state_dir: Some(dir.to_owned()), socket: None, netlink: true };
    let confinement = Confinement::begin(Mode::Full, needs, || Deed::Map.attempt(dir).is_ok())?;
    let _refusals = hear(SignalKind::from_raw(refusal::SIGNAL))?;
    let done = confinement.start(role, || deed.attempt(dir))?;
    if deed == Deed::Hear {
        runtime.block_on(async { time::timeout(machine::patience(), terminate.recv()).await })?;
    }
    let calls: Vec<usize> = refusal::untold().into_iter().map(|(call, _)| call).collect();
    match done {
        // Nor may what it can do take a call that is refused, and is only made up for.
        Ok(()) if calls.is_empty() => Ok(DONE),
        Ok(()) => Err(anyhow!("it could do {deed:?} though refused calls {calls:?}")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let call = usize::try_from(libc::SYS_kill)?;
            ensure!(deed != Deed::Signal || calls == [call] && refusal::count() == 1, "not noted: {calls:?}");
            Ok(REFUSED)
        }
        Err(error) => Err(error.into()),
    }
}
