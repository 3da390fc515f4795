//! A program with many roles, each a process that the tests need: with a given exit status, environment,
//! cgroup or threads.
//!
//! Under another name it looks like the program of that name to the kernel and the hooks.

use std::{
    env,
    ffi::{CString, OsString},
    fs, io,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _, process::CommandExt as _},
    path::Path,
    process::{self, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    libc,
    sched::{CloneFlags, clone, unshare},
    sys::memfd::{MFdFlags, memfd_create},
    sys::signal::SigSet,
    sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType},
    sys::wait::{WaitStatus, waitpid},
    unistd::{Uid, execve, setuid},
};
use tests::{
    cgroupfs::{self, Hierarchy},
    clock,
    guard::{container::Container, unique_name},
};

fn main() -> Result<ExitCode> {
    let mut words = env::args_os().skip(1);
    let role = words.next().context("no role is given")?;
    let rest: Vec<OsString> = words.collect();
    match (role.to_str().unwrap_or_default(), rest.as_slice()) {
        ("exit", [code, ..]) => Ok(ExitCode::from(number::<u8>(code)?)),
        ("wait", _) => wait("ready"),
        ("fork-apart", _) => fork_apart(),
        ("run", command) => run(command),
        ("take-root", command) => take_root(command),
        ("repeat", [times, command @ ..]) => repeat(number(times)?, command),
        ("contained", command) => contained(command),
        ("netns", [times]) => netns(number(times)?),
        ("cgroups", [times]) => cgroups(number(times)?),
        ("become", [environment, command @ ..]) => r#become(Path::new(environment), command),
        ("enter", [cgroups, command @ ..]) => enter(cgroups, command),
        ("listen", _) => listen(),
        ("unshare", [milliseconds]) => unshare_for(Duration::from_millis(number(milliseconds)?)),
        ("as", [user, command @ ..]) => as_user(number(user)?, command),
        ("deaf", _) => deaf(),
        ("signal", [pid, times]) => signal(number(pid)?, number(times)?),
        ("address", [netns, each]) => address(number(netns)?, number(each)?),
        ("eat", _) => Ok(eat()),
        ("eat-shared", _) => eat_shared(),
        ("leave-a-thread", [code]) => leave_a_thread(number(code)?),
        ("exec-in-a-thread", command) => exec_in_a_thread(command),
        _ => bail!("no such role: {role:?} {rest:?}"),
    }
}

fn number<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    word: &OsString,
) -> Result<T> {
    word.to_str().unwrap_or_default().parse().with_context(|| format!("{word:?} is not a number"))
}

fn command(words: &[OsString]) -> Result<Command> {
    let (program, arguments) = words.split_first().context("no program is given")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Prints a word and waits for the end of its input.
fn wait(word: &str) -> Result<ExitCode> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{word}").and_then(|()| stdout.flush())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

/// Makes sockets listen: an IPv4 socket, on which `listen` is called twice; an IPv6 socket, if there is IPv6;
/// a socket that is bound to no port; and one that cannot be bound. Prints the times around the first call,
/// and the ports of the first two sockets.
fn listen() -> Result<ExitCode> {
    let from = clock::boot_ns()?;
    let first = TcpListener::bind("127.0.0.1:0")?;
    let to = clock::boot_ns()?;
    let (v4, address) = (first.local_addr()?.port(), first.local_addr()?);
    socket::listen(&first, Backlog::new(7)?)?;
    let second = TcpListener::bind("[::1]:0").ok();
    let v6 = second.as_ref().map(|it| it.local_addr()).transpose()?.map_or(0, |it| it.port());
    let unbound = socket::socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None)?;
    socket::listen(&unbound, Backlog::new(1)?)?;
    if TcpListener::bind(address).is_ok() {
        bail!("two sockets have one port");
    }
    wait(&format!("{from} {to} {v4} {v6}"))
}

/// Runs a program as a runtime runs a plugin.
fn run(words: &[OsString]) -> Result<ExitCode> {
    let status = command(words)?.status()?;
    Ok(ExitCode::from(u8::try_from(status.code().context("the program was killed")?)?))
}

/// Permanently takes the capabilities that this program's file grants.
fn take_root(words: &[OsString]) -> Result<ExitCode> {
    setuid(Uid::from_raw(0))?;
    run(words)
}

fn repeat(times: u32, words: &[OsString]) -> Result<ExitCode> {
    let mut command = command(words)?;
    for _ in 0..times {
        command.status()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the hierarchy that the agent watches on a node without containers.
fn first_hierarchy() -> Result<Hierarchy> {
    let all = cgroupfs::hierarchies()?;
    let unified = all.iter().find(|hierarchy| hierarchy.id == 0);
    unified.or_else(|| cgroupfs::of_containers(&all)).cloned().context("containers have no hierarchy")
}

/// Runs a program in the cgroup of a container, and then removes the cgroup.
fn contained(words: &[OsString]) -> Result<ExitCode> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let container = Container::create(&first_hierarchy()?)?;
    let status = container.command(&words.context("a word is no text")?)?.status()?;
    Ok(ExitCode::from(u8::try_from(status.code().context("it was killed")?)?))
}

/// Moves into a new network namespace this many times. The kernel frees the former ones by itself.
fn netns(times: u32) -> Result<ExitCode> {
    for _ in 0..times {
        unshare(CloneFlags::CLONE_NEWNET)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes and removes a cgroup this many times.
fn cgroups(times: u32) -> Result<ExitCode> {
    let directory = first_hierarchy()?.directory(&unique_name("pair"));
    for _ in 0..times {
        fs::create_dir(&directory)?;
        fs::remove_dir(&directory)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Executes a program with the environment from a file. The file has the strings in order, each with a NUL
/// after it.
fn r#become(environment: &Path, words: &[OsString]) -> Result<ExitCode> {
    let text = fs::read(environment).with_context(|| format!("read {}", environment.display()))?;
    let strings: Vec<CString> = text
        .split(|byte| *byte == 0)
        .filter(|one| !one.is_empty())
        .map(CString::new)
        .collect::<Result<_, _>>()?;
    let words: Vec<CString> =
        words.iter().map(|word| CString::new(word.clone().into_vec())).collect::<Result<_, _>>()?;
    let program = words.first().context("no program is given")?;
    match execve(program, &words, &strings)? {}
}

/// Enters cgroups (directories with colons between) and executes a program there.
fn enter(cgroups: &OsString, words: &[OsString]) -> Result<ExitCode> {
    for cgroup in env::split_paths(cgroups) {
        fs::write(cgroup.join("cgroup.procs"), process::id().to_string())
            .with_context(|| format!("enter {}", cgroup.display()))?;
    }
    Err(command(words)?.exec().into())
}

/// Forks a child into a network namespace of its own. The child prints the inode and waits for the end of its
/// input.
fn fork_apart() -> Result<ExitCode> {
    let mut stack = vec![0; 256 << 10];
    let child = || {
        let inode = fs::metadata("/proc/self/ns/net").map(|link| link.ino().to_string());
        isize::from(inode.map_err(Into::into).and_then(|inode| wait(&inode)).is_err())
    };
    // SAFETY: the child has its own copy of all memory, and this process has one thread, so no other thread
    // is interrupted in its work.
    let child = unsafe { clone(Box::new(child), &mut stack, CloneFlags::CLONE_NEWNET, Some(libc::SIGCHLD)) }?;
    match waitpid(child, None)? {
        WaitStatus::Exited(_, 0) => Ok(ExitCode::SUCCESS),
        other => bail!("the child ended with {other:?}"),
    }
}

/// Leaves one network namespace for a new one, again and again.
fn unshare_for(time: Duration) -> Result<ExitCode> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        unshare(CloneFlags::CLONE_NEWNET)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Permanently becomes another user and executes a program.
fn as_user(user: u32, words: &[OsString]) -> Result<ExitCode> {
    // The process keeps no other groups.
    Err(command(words)?.uid(user).gid(user).exec().into())
}

/// Waits for the end of its input with all signals blocked.
fn deaf() -> Result<ExitCode> {
    SigSet::all().thread_set_mask()?;
    wait("ready")
}

/// Sends a process many signals of the kind that is queued and not merged.
fn signal(pid: i32, times: u32) -> Result<ExitCode> {
    let signal = libc::SIGRTMIN() + 5;
    for _ in 0..times {
        // SAFETY: kill(2) only sends a signal.
        if unsafe { libc::kill(pid, signal) } != 0 {
            bail!("signal {pid}: {}", io::Error::last_os_error());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes network namespaces one after the other, and gives each this many addresses.
fn address(netns: u32, each: u32) -> Result<ExitCode> {
    let lines: String =
        (0..each).map(|i| format!("address add 10.9.{}.{}/32 dev lo\n", i / 250, i % 250 + 1)).collect();
    for _ in 0..netns {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        ip.stdin.take().context("ip has no input")?.write_all(lines.as_bytes())?;
        let status = ip.wait()?;
        if !status.success() {
            bail!("ip ended with {status}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Allocates more memory than there is.
fn eat() -> ExitCode {
    const PIECE: usize = 1 << 20;
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![1; PIECE]);
    }
}

/// Does the same with shared memory, which counts as no process's own. So this process looks no larger than
/// the others of its cgroup.
fn eat_shared() -> Result<ExitCode> {
    let mut file = fs::File::from(memfd_create("eaten", MFdFlags::MFD_CLOEXEC)?);
    let piece = vec![1; 64 << 10];
    loop {
        file.write_all(&piece)?;
    }
}

/// Ends the first thread before another one, which then ends the process with this code.
fn leave_a_thread(code: i32) -> Result<ExitCode> {
    thread::Builder::new().spawn(move || {
        let is_over = || {
            let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z'))
        };
        while !is_over() {
            thread::yield_now();
        }
        process::exit(code);
    })?;
    // SAFETY: this ends only this thread, and the other one uses nothing on its stack.
    unsafe { libc::syscall(libc::SYS_exit, 7) };
    bail!("the thread did not end")
}

fn exec_in_a_thread(words: &[OsString]) -> Result<ExitCode> {
    let mut command = command(words)?;
    let error = thread::spawn(move || command.exec()).join();
    bail!("the thread did not execute anything: {error:?}")
}
