//! Sockets begin to listen, in containers and elsewhere.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{self, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use probe_user::model::fact::{Fact, Family, Listened, Mechanism, Observation, Signal};
use tests::live::Shared;

use crate::container::{Container, actor};

/// What the actor says of itself.
struct Truth {
    pid: u32,
    from: u64,
    to: u64,
    v4: u16,
    /// 0: this kernel has no IPv6.
    v6: u16,
}

/// Runs the actor until it has listened.
fn listen(mut command: Command) -> Result<Truth> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    drop(child.stdin.take());
    ensure!(child.wait()?.success(), "the actor failed: {line}");
    let words = line.split_whitespace().map(|word| Ok(word.parse()?)).collect::<Result<Vec<u64>>>()?;
    let &[from, to, v4, v6] = words.as_slice() else { anyhow::bail!("the actor said {line:?}") };
    Ok(Truth { pid: child.id(), from, to, v4: u16::try_from(v4)?, v6: u16::try_from(v6)? })
}

fn told_of(seen: &[Observation], pid: u32) -> Vec<(u64, &Listened)> {
    let of_pid = |one: &&Observation| matches!(&one.fact, Fact::Listened(it) if it.task.key.pid == pid);
    let mut told: Vec<_> = seen.iter().filter(of_pid).collect();
    told.sort_by_key(|one| one.at);
    told.into_iter()
        .filter_map(|one| match &one.fact {
            Fact::Listened(it) => Some((one.at.0, it)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_containers_sockets_are_told_of_once_each_and_nobody_elses() -> Result<()> {
    let mut live = Shared::start()?;
    let mechanism = live.mechanism(Signal::Listening);
    ensure!(mechanism == Some(Mechanism::RawTracepoint), "{:?}", live.missed(Signal::Listening));
    let container = Container::create(live.hierarchy())?;
    // What is outside of containers listens for nobody; connections come and go.
    let outside = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(outside.local_addr()?)?;
    drop((outside.accept()?, stream));
    let mut bare = Command::new(actor()?);
    bare.arg("listen");
    let elsewhere = listen(bare)?;

    let own = container.cgroup().id();
    let truth = listen(container.command(&[&actor()?, "listen"])?)?;
    // A container makes cgroups below its own as it likes.
    let nested = container.cgroup().directory().join("nested");
    fs::create_dir(&nested)?;
    let nested = nested.to_str().context("the path is no text")?;
    let actor = actor()?;
    let below = listen(container.command(&[&actor, "enter", nested, &actor, "listen"])?)?;

    let all = if truth.v6 == 0 { 2 } else { 3 };
    live.until("all sockets", |seen| (told_of(seen, below.pid).len() >= all).then_some(()))?;
    let seen = live.settled()?;
    ensure!(told_of(&seen, process::id()).is_empty() && told_of(&seen, elsewhere.pid).is_empty());
    for truth in [truth, below] {
        let told = told_of(&seen, truth.pid);
        let ports: Vec<(u16, Family)> =
            told.iter().map(|(_, it)| (it.socket.port, it.socket.family)).collect();
        let mut expected = vec![(truth.v4, Family::Ipv4)];
        expected.extend((truth.v6 != 0).then_some((truth.v6, Family::Ipv6)));
        // The kernel had not chosen its port yet.
        expected.push((0, Family::Ipv4));
        ensure!(ports == expected, "{ports:?}, and not {expected:?}");
        let (at, first) = told[0];
        ensure!((truth.from..=truth.to).contains(&at), "{at} is not from {} to {}", truth.from, truth.to);
        ensure!((first.container.hierarchy, first.container.id) == (own.hierarchy, own.id), "{first:?}");
    }
    Ok(())
}
