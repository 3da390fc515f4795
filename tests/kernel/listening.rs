//! Processes in containers and elsewhere begin to listen on sockets.

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

/// The times and ports that the actor prints.
struct Printed {
    pid: u32,
    from: u64,
    to: u64,
    v4: u16,
    /// 0: this kernel has no IPv6.
    v6: u16,
}

/// Runs the actor until it has listened.
fn listen(mut command: Command) -> Result<Printed> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    drop(child.stdin.take());
    ensure!(child.wait()?.success(), "the actor failed: {line}");
    let words = line.split_whitespace().map(|word| Ok(word.parse()?)).collect::<Result<Vec<u64>>>()?;
    let &[from, to, v4, v6] = words.as_slice() else { anyhow::bail!("the actor printed {line:?}") };
    Ok(Printed { pid: child.id(), from, to, v4: u16::try_from(v4)?, v6: u16::try_from(v6)? })
}

fn reported(seen: &[Observation], pid: u32) -> Vec<(u64, &Listened)> {
    let of_pid = |one: &&Observation| matches!(&one.fact, Fact::Listened(it) if it.task.key.pid == pid);
    let mut events: Vec<_> = seen.iter().filter(of_pid).collect();
    events.sort_by_key(|one| one.at);
    events
        .into_iter()
        .filter_map(|one| match &one.fact {
            Fact::Listened(it) => Some((one.at.0, it)),
            _ => None,
        })
        .collect()
}

#[test]
fn only_the_sockets_of_containers_are_reported_and_each_once() -> Result<()> {
    let mut live = Shared::start()?;
    let mechanism = live.mechanism(Signal::Listening);
    ensure!(mechanism == Some(Mechanism::RawTracepoint), "{:?}", live.missed(Signal::Listening));
    let container = Container::create(live.hierarchy())?;
    // A process outside containers listens and takes a connection. No event reports that.
    let outside = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(outside.local_addr()?)?;
    drop((outside.accept()?, stream));
    let mut bare = Command::new(actor()?);
    bare.arg("listen");
    let elsewhere = listen(bare)?;

    let own = container.cgroup().id();
    let printed = listen(container.command(&[&actor()?, "listen"])?)?;
    // A container may make cgroups below its own.
    let nested = container.cgroup().directory().join("nested");
    fs::create_dir(&nested)?;
    let nested = nested.to_str().context("the path is no text")?;
    let actor = actor()?;
    let below = listen(container.command(&[&actor, "enter", nested, &actor, "listen"])?)?;

    let all = if printed.v6 == 0 { 2 } else { 3 };
    live.until("all sockets", |seen| (reported(seen, below.pid).len() >= all).then_some(()))?;
    let seen = live.settled()?;
    ensure!(reported(&seen, process::id()).is_empty() && reported(&seen, elsewhere.pid).is_empty());
    for printed in [printed, below] {
        let events = reported(&seen, printed.pid);
        let ports: Vec<(u16, Family)> =
            events.iter().map(|(_, it)| (it.socket.port, it.socket.family)).collect();
        let mut expected = vec![(printed.v4, Family::Ipv4)];
        expected.extend((printed.v6 != 0).then_some((printed.v6, Family::Ipv6)));
        // The kernel had not chosen this socket's port when it was reported.
        expected.push((0, Family::Ipv4));
        ensure!(ports == expected, "{ports:?}, and not {expected:?}");
        let (at, first) = events[0];
        ensure!(
            (printed.from..=printed.to).contains(&at),
            "{at} is not from {} to {}",
            printed.from,
            printed.to
        );
        ensure!((first.container.hierarchy, first.container.id) == (own.hierarchy, own.id), "{first:?}");
    }
    Ok(())
}
