//! The server of the shipped agent: how soon clients get an event, and that no number of slow, broken or
//! greedy clients loses an event or takes much memory.

mod client;
mod full_disk;
mod hangup;
mod hung;
mod kubernetes;
mod outage;

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn};
use tests::{clock, guard::cgroup::CgroupGuard, guard::netns::MountedNetns, held, live::Shared, machine};

use self::client::{Agent, Stream, get};

/// The bound on the agent's peak memory, in kB.
const MEMORY_KB: u64 = 64 << 10;
/// The number of events in a second, and for how long.
const RATE: u64 = 200;
const TIME: Duration = Duration::from_secs(10);
/// The bound on the 99th percentile of the delay.
const LATE: Duration = Duration::from_millis(50);

/// Returns the 99th percentile.
fn p99(mut spans: Vec<Duration>) -> Option<Duration> {
    spans.sort_unstable();
    spans.get((spans.len() * 99).div_ceil(100).checked_sub(1)?).copied()
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn followers_and_scrapes_see_an_event_soon() -> Result<()> {
    let agent = Agent::start()?;
    // An emulated machine is slow, and its times say nothing about the agent.
    let (rate, time) = if machine::is_emulated() { (2, Duration::from_secs(20)) } else { (RATE, TIME) };
    let stop = Arc::new(AtomicBool::new(false));
    let mut stream = Stream::open(&agent, "/v1/events?event=netns.created")?;
    let before = counter(&get(agent.address, "/metrics")?)?;
    let scraping = thread::spawn({
        let (address, stop) = (agent.address, Arc::clone(&stop));
        move || scrape(address, &stop)
    });
    let following = thread::spawn(move || -> Result<Vec<(u64, u64)>> {
        let mut seen = Vec::new();
        while let Some(line) = stream.line()? {
            let now = clock::boot_ns()?;
            let event: serde_json::Value = serde_json::from_str(&line)?;
            if event["event"] == "netns.created" {
                let at = event["boot_ns"].as_str().context("no boot_ns")?.parse()?;
                seen.push((at, now));
            }
        }
        Ok(seen)
    });
    // Each namespace gives three events: created, dropped, freed.
    let count = rate * time.as_secs() / 3;
    let begun = Instant::now();
    for n in 1..=count {
        MountedNetns::create()?.end()?;
        let due = begun + time.mul_f64(n as f64 / count as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let took = begun.elapsed();
    let all_counted = || -> Result<Option<()>> {
        Ok((counter(&get(agent.address, "/metrics")?)? >= before + count).then_some(()))
    };
    clock::poll("all are counted", machine::patience(), all_counted)?;
    stop.store(true, Ordering::Relaxed);
    let scrapes = scraping.join().map_err(|_panic| anyhow!("the scraper panicked"))??;
    agent.end()?;
    let seen = following.join().map_err(|_panic| anyhow!("the follower panicked"))??;

    let n = seen.len();
    ensure!(n as u64 >= count, "{n} of {count} namespaces were streamed");
    let streamed = seen.iter().map(|(at, now)| Duration::from_nanos(now.saturating_sub(*at))).collect();
    // For each namespace, the first scrape that counts it.
    let counted = seen.iter().zip(1..).filter_map(|((at, _), n): (_, u64)| {
        let scrape = scrapes.iter().find(|(_, count)| *count >= before + n)?;
        Some(Duration::from_nanos(scrape.0.saturating_sub(*at)))
    });
    let (streamed, counted) =
        (p99(streamed).context("no event")?, p99(counted.collect()).context("no scrape")?);
    let rate = 3.0 * n as f64 / took.as_secs_f64();
    println!(
        "{rate:.0} events a second: p99 to the stream {streamed:?}, to {} scrapes {counted:?}",
        scrapes.len()
    );
    if !machine::is_emulated() {
        ensure!(rate > 0.9 * RATE as f64, "{rate} events a second are too few");
        ensure!(streamed < LATE && counted < LATE, "p99 to the stream {streamed:?}, to a scrape {counted:?}");
    }
    Ok(())
}

/// Scrapes as often as it can. Returns the boot time of each answer and the counter in it.
fn scrape(address: SocketAddr, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut scrapes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let text = get(address, "/metrics")?;
        scrapes.push((clock::boot_ns()?, counter(&text)?));
        // Leaves the CPU to other work of the machine.
        thread::sleep(Duration::from_millis(10));
    }
    Ok(scrapes)
}

/// Returns the number of namespaces that were made.
fn counter(text: &str) -> Result<u64> {
    events(text, "netns.created")
}

/// Returns how many events of this kind were reported.
fn events(text: &str, kind: &str) -> Result<u64> {
    let series = format!("sandprobe_events_total{{kind=\"{kind}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&series));
    Ok(count.context("the counter is missing")?.parse()?)
}

/// The agent reports the time without an agent before its server exists.
#[test]
fn what_is_told_at_the_start_is_counted() -> Result<()> {
    let state = tempfile::tempdir()?;
    let state = state.path().to_str().context("the path is no text")?;
    let start = || Agent::start_with(state, &[], Stdio::null(), "/healthz");
    start()?.end()?;
    let agent = start()?;
    let text = get(agent.address, "/metrics")?;
    ensure!(events(&text, "gap")? > 0, "{text}");
    agent.end()
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn no_client_makes_the_agent_lose_an_event() -> Result<()> {
    let (connections, scrapes, slow) =
        (machine::share_of(10_000), machine::share_of(1_000), machine::share_of(200));
    let hierarchy = Shared::start()?.hierarchy().clone();
    let agent = Agent::start()?;
    let address = agent.address;
    let stop = AtomicBool::new(false);
    let made = AtomicUsize::new(0);
    let scraped = thread::scope(|scope| -> Result<usize> {
        let life = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                MountedNetns::create()?.end()?;
                CgroupGuard::create(&hierarchy)?.end()?;
                made.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let broken: Vec<_> = (0..slow).map(|n| scope.spawn(move || be_broken(address, n))).collect();
        let greedy: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    for _ in 0..connections / 4 {
                        // The server refuses connections above its limit.
                        drop(TcpStream::connect(address));
                    }
                })
            })
            .collect();
        let scraped = (0..scrapes).filter(|_| get(address, "/metrics").is_ok()).count();
        for thread in greedy {
            thread.join().map_err(|_panic| anyhow!("a client panicked"))?;
        }
        for thread in broken {
            thread.join().map_err(|_panic| anyhow!("a client panicked"))?;
        }
        stop.store(true, Ordering::Relaxed);
        life.join().map_err(|_panic| anyhow!("the maker of namespaces panicked"))??;
        Ok(scraped)
    })?;
    // The server still answers over TCP and over its socket.
    clock::poll("the agent answers", machine::patience(), || Ok(get(address, "/healthz").ok()))?;
    let doctor: serde_json::Value = serde_json::from_str(&agent.ask("/v1/doctor")?)?;
    let most = held::kilobytes(agent.id(), "VmHWM")?;
    let made = made.into_inner();
    println!(
        "{scraped} of {scrapes} scrapes among {slow} broken clients and {connections} connections; {made} lives; {most} kB"
    );
    ensure!(doctor["agent"]["losses"].get("lifecycle_ring").is_none(), "lost: {}", doctor["agent"]["losses"]);
    ensure!(most < MEMORY_KB, "{most} kB");
    ensure!(scraped * 2 > scrapes, "only {scraped} of {scrapes} scrapes were answered");
    ensure!(made > 0, "nothing happened meanwhile");
    agent.end()
}

/// Misbehaves in one of four ways until the server ends the connection or a few seconds have passed. Errors
/// are expected.
fn be_broken(address: SocketAddr, n: usize) {
    const LONGEST: Duration = Duration::from_secs(15);
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    stream.set_write_timeout(Some(LONGEST)).ok();
    stream.set_read_timeout(Some(LONGEST)).ok();
    let until = Instant::now() + LONGEST;
    match n % 4 {
        // The head never ends and comes one byte at a time.
        0 => {
            while Instant::now() < until && stream.write_all(b"G").is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        }
        // The head is too long.
        1 => {
            let header = format!("X-{n}: {}\r\n", "x".repeat(1000));
            stream.write_all(b"GET / HTTP/1.1\r\n").ok();
            while Instant::now() < until && stream.write_all(header.as_bytes()).is_ok() {}
        }
        // The client sends a request and closes its sending side.
        2 => {
            stream.write_all(b"GET /v1/doctor HTTP/1.1\r\nHost: localhost\r\n\r\n").ok();
            stream.shutdown(Shutdown::Write).ok();
            stream.read_to_end(&mut Vec::new()).ok();
        }
        // The client follows the events and reads nothing.
        _ => {
            stream.write_all(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").ok();
            thread::sleep(LONGEST / 2);
        }
    }
}

/// A process holds the pipe open and does not read, like a log shipper that hangs.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn an_unread_standard_output_does_not_stop_the_agent() -> Result<()> {
    const DROPPED: &str = "sandprobe_stream_events_dropped_total{why=\"slow\"} ";
    let hierarchy = Shared::start()?.hierarchy().clone();
    let (unread, output) = io::pipe()?;
    let agent = Agent::with_output(output.into())?;
    let dropped = || -> Result<u64> {
        let text = get(agent.address, "/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(DROPPED));
        Ok(line.context("the counter is missing")?.parse()?)
    };
    // The memory queue takes some thousand events before the first is dropped.
    let mut made = 0;
    let begun = Instant::now();
    while dropped()? < 1000 {
        for _ in 0..500 {
            CgroupGuard::create(&hierarchy)?.end()?;
            made += 1;
        }
        ensure!(
            begun.elapsed() < machine::patience() * 4,
            "{made} cgroups came and went, and nothing was dropped"
        );
    }
    let started = Instant::now();
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "the agent is not alive");
    let took = started.elapsed();
    println!("{made} cgroups later, /healthz took {took:?}");
    let (status, stderr) = agent.ended()?;
    drop(unread);
    ensure!(
        status.code() == Some(1) && stderr.contains("events were not written to standard output"),
        "{status} {stderr}"
    );
    Ok(())
}

/// One pod makes as many connections as it can, from one address and from many. Meanwhile the kubelet probes.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn silent_connections_do_not_keep_probes_out() -> Result<()> {
    const PROBED: Duration = Duration::from_millis(50);
    let agent = Agent::start()?;
    let mut silent = Vec::new();
    let mut slowest = Duration::ZERO;
    for n in 0..600_u16 {
        // The first 300 come from one address, the others from a hundred addresses.
        let last = if n < 300 { 2 } else { 3 + u8::try_from(n % 100)? };
        silent.push(connect(agent.address, last)?);
        if n % 100 == 99 {
            let started = Instant::now();
            let mut probe = connect(agent.address, 200)?;
            probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut begun = [0; 15];
            probe.read_exact(&mut begun).with_context(|| format!("the probe after {n} connections"))?;
            slowest = slowest.max(started.elapsed());
            ensure!(&begun == b"HTTP/1.1 200 OK", "{}", String::from_utf8_lossy(&begun));
        }
    }
    println!("600 silent connections: the slowest probe took {slowest:?}");
    ensure!(machine::is_emulated() || slowest < PROBED, "{slowest:?}");
    agent.end()
}

/// A user of the node follows the events on as many connections as are answered, from many addresses.
#[test]
fn users_of_the_node_leave_root_its_streams() -> Result<()> {
    const FOLLOW: &[u8] = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let agent = Agent::start()?;
    let mut streams = Vec::new();
    loop {
        let mut stream = connect(agent.address, 2 + u8::try_from(streams.len())?)?;
        stream.write_all(FOLLOW)?;
        let mut begun = [0; 12];
        stream.read_exact(&mut begun)?;
        if &begun == b"HTTP/1.1 503" {
            break;
        }
        ensure!(&begun == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&begun));
        streams.push(stream);
    }
    ensure!(streams.len() == 8, "{} streams", streams.len());
    let events = agent.ask("/v1/events?since=0&follow=false")?;
    ensure!(events.contains("stream.opened"), "{events}");
    agent.end()
}

/// Returns a connection from `127.0.0.LAST`.
fn connect(to: SocketAddr, last: u8) -> Result<TcpStream> {
    let SocketAddr::V4(to) = to else { return Err(anyhow!("{to} is not an IPv4 address")) };
    let socket: OwnedFd =
        socket::socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0);
    socket::bind(socket.as_raw_fd(), &SockaddrIn::from(from))?;
    socket::connect(socket.as_raw_fd(), &SockaddrIn::from(to))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(machine::patience()))?;
    Ok(stream)
}
