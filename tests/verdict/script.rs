//! The language of stories. A line has a time and an event in the words of kubelet, runtime and CNI.
//!
//! ```text
//! # Comments explain the story.
//! 0s    runtime starts                         | dies
//! 0s    kubelet starts                         | dies
//! 0s    kubelet starts as VERSION              with an executable of this version
//! 5s    kubelet|runtime fails CODE             it ends by itself | is stopped: by systemd
//! 5s    runtime is asked                       a program of its name is run for its configuration, and fails
//! 5s    kubelet|runtime says of itself TEXT…   it logs why it ends
//! 0s    crio starts                            | dies: a second runtime, which nobody uses
//! 0s    second containerd starts               | dies: that of Docker, which no kubelet uses
//! 0s    runtime is followed                    over CRI, with its events, from now on
//! 1m    runtime lists                          what it has, without being asked
//! 5s    runtime hangs                          its process is stopped | goes on
//! 5s    runtime is slow                        it answers, and its list comes too late | is quick
//! 5s    runtime is closed to us                its socket may not be used | is open to us
//! 1s    pod NAME [goes]                        its cgroup is made, or removed
//! 1s    pod NAME is deleted                    its log folder is removed
//! 1s    pod NAME has NAME[,NAME]               the kubelet's record names its containers
//! 2s    sandbox S of POD on NET ADDR[,ADDR] [and NET ADDR…]     the whole RunPodSandbox
//! 2s    sandbox S of POD begins                RunPodSandbox up to its network namespace
//! 2s    sandbox S of POD before boot           only the runtime's record is left of it
//! 2s    sandbox S of POD under gvisor|gvisor-alone|kata on NET ADDR  hides the containers' programs
//! 2s    add S NET ADDR[,ADDR] [fails|fails-holding|stops]     stops: only the first plugin is called
//! 2s    add S NET overtaken|killed             a DEL of S begins before the ADD ends, or after it was killed
//! 2s    del S NET in T                         a DEL of S is given the namespace of T
//! 2s    del S NET in process of T              by the pid of T's pause | node: of a program of the node
//!                                              | newcomer: of one that begins only after the DEL
//! 2s    record S                               the runtime makes its record before the network
//! 2s    sandbox S runs                         the rest of RunPodSandbox
//! 3s    container NAME in S starts             | fails: its program cannot be run
//! 3s    container NAME in S exits CODE         | is stopped: by the runtime, with SIGTERM
//! 3s    container NAME in S is killed|ended by COMM   by SIGKILL or SIGTERM of one process of the node
//! 4s    stop S [del-fails|del-hollow|no-del]   StopPodSandbox
//! 5s    remove S [del-fails|del-hollow|no-del] RemovePodSandbox
//! 5s    vm of S gives way                      its first process ends, and the virtual machine runs on
//! 5s    kill pause of S by kubelet|stranger|oom
//! 5s    netns of S lost                        its file is removed
//! 5s    cache of S torn                        its file in libcni's cache is damaged | mended: moved away
//! 5s    cache of S written                     its file was half written, and is whole now
//! 5s    forget S                               the runtime loses its record without a DEL
//! 5s    free ADDR                              the store's record is removed
//! 5s    empty ADDR in NET                      the store has an empty file for the address
//! 5s    wakes                                  the node was suspended until this time
//! 5s    kubelet|runtime says of POD TEXT…          it logs an error about the pod
//! 5s    plugin says of POD TEXT…                   a container of the plugin's own pod logs it
//! 5s    lose N                                 records of the lifecycle ring are lost
//! 5s    lose N until TIME                      the agent is stopped; until then any record may be lost
//! 5s    lose N of containers                   records of the bulk ring are lost
//! 5s    unreadable                             the node's files can no longer be read
//! 5s    half-read                              the runtime's records can no longer be read completely
//! 5s    network NET unconfigured               no configuration names it any more
//! 5s    configuration undecodable                the file is cut off | repaired | gone
//! 5s    configuration read                       by the agent, without a question
//! 5s    plugin NAME missing                      its executable is not there | back
//! 5s    configuration half-read                the networks' configuration cannot be read completely
//! 5s    plain C on NETWORK ADDR                a container of no pod, by podman; `default-C`: by nerdctl
//! 5s    own-address S ADDR IFNAME              a program in the pod adds an address by itself
//! 5s    check|status S                         the runtime calls CHECK or STATUS of a plugin
//! 5s    agent starts                           it lists what began before
//! 5s    agent restarts                         with the state of the agent before
//! 9m    end
//! expect confirmed|candidate|closed KIND[/CAUSE] [ADDR] [POD] [since TIME] [says TEXT…]
//! expect incident KIND[ .KIND ..KIND]…   a dot for each step from the root; +: one sandbox, cause unknown
//! expect nothing
//! ```
//!
//! A story names all incidents of more than one finding that it has.

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use probe_user::{
    engine::incident::{Incident, Incidents, Member},
    model::{
        change::Finding,
        fact::{Answer, CniCommand, Loss},
        finding::{
            AbandonedSandbox, AbandonedStore, BlindSpot, CniQueue, CniSlow, CniWrongDel, DuplicateAddress,
            DuplicateContainer, DuplicateSandbox, Kind, LostNetwork, OwnerlessReservation, PhantomSandbox,
            SandboxesReplaced, Stage, StuckStart, StuckStop, TeardownOutOfOrder, UnverifiedRelease,
        },
        time::Timestamp,
    },
};

use crate::{
    drive::Drive,
    schema,
    sim::{Add, BEGIN, Death, Del, Sim, Under},
};

/// Runs a story and checks each of its events against the schema. An error is the difference between the
/// expected and the actual findings.
pub(crate) fn run(text: &str) -> Result<(), String> {
    let (drive, expected, incidents) = play(text)?;
    compare(&expected, &drive)?;
    compare_incidents(incidents, &drive)
}

/// Plays a story. Returns it as it ended, with the findings and incidents that it expects.
pub(crate) fn play(text: &str) -> Result<(Drive, Vec<String>, Vec<String>), String> {
    let mut drive = Drive::new(Sim::new());
    drive.each_change = schema::check;
    let mut expected = Vec::new();
    let mut incidents: Vec<String> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words.as_slice() {
            [] => Ok(()),
            ["expect", "nothing"] => {
                expected.push(None);
                Ok(())
            }
            ["expect", "incident", rest @ ..] => {
                incidents.push(rest.join(" "));
                Ok(())
            }
            ["expect", rest @ ..] => {
                expected.push(Some(rest.join(" ")));
                Ok(())
            }
            [time, "agent", "starts"] => at(time).map(|at| drive.start_late(at)),
            [time, "wakes"] => at(time).map(|at| drive.wake(at)),
            [time, "lose", count, "until", until] => at(time).and_then(|at| {
                drive.pass_to(at);
                let count = count.parse().map_err(|_error| "a number")?;
                drive.sim.lost_until(self::at(until)?, count);
                drive.settle();
                Ok(())
            }),
            [time, "agent", "restarts"] => at(time).map(|at| drive.restart(at)),
            [time, rest @ ..] => at(time).and_then(|at| {
                drive.pass_to(at);
                step(&mut drive.sim, rest)?;
                drive.settle();
                Ok(())
            }),
        };
        done.map_err(|why| format!("line {}: {why}: {line}", number + 1))?;
    }
    if expected.is_empty() {
        return Err("the story expects nothing, and does not say so".to_owned());
    }
    Ok((drive, expected.into_iter().flatten().collect(), incidents))
}

/// The incidents of more than one finding.
fn compare_incidents(mut expected: Vec<String>, drive: &Drive) -> Result<(), String> {
    let found = Incidents::of(&drive.findings);
    let name = |it: &Member<'_>| {
        let with = if it.with.is_some() { "+" } else { "" };
        format!("{}{with}{}", ".".repeat(it.depth), it.finding.kind.into_str())
    };
    let line = |it: &Incident<'_>| it.members.iter().map(name).collect::<Vec<_>>().join(" ");
    let mut found: Vec<String> = found.all().iter().filter(|it| it.members.len() > 1).map(line).collect();
    found.sort_unstable();
    expected.sort_unstable();
    if found == expected {
        return Ok(());
    }
    Err(format!("  expected incidents: {expected:?}\n  found:              {found:?}\n"))
}

pub(crate) fn step(sim: &mut Sim, words: &[&str]) -> Result<(), String> {
    match words {
        ["runtime", "starts"] => sim.runtime_starts(),
        ["runtime", "dies"] => sim.runtime_dies(),
        ["kubelet", "starts"] => sim.kubelet_starts(),
        ["kubelet", "starts", "as", version] => sim.kubelet_starts_as(version),
        ["kubelet", "dies"] => sim.kubelet_dies(),
        [by @ ("kubelet" | "runtime"), "fails", code] => {
            sim.daemon_fails(by, code.parse().map_err(|_error| "an exit code")?);
        }
        [by @ ("kubelet" | "runtime"), "is", "stopped"] => sim.daemon_is_stopped(by),
        ["runtime", "is", "asked"] => sim.runtime_is_asked(),
        [by @ ("kubelet" | "runtime"), "says", "of", "itself", text @ ..] => {
            sim.says(by, "", &text.join(" "))
        }
        ["runtime", "is", "followed"] => sim.follow(),
        ["runtime", "lists"] => sim.list_statuses(),
        ["runtime", "hangs"] => sim.runtime_answers(Answer::Hangs),
        ["runtime", "is", "slow"] => sim.runtime_answers(Answer::Slow),
        ["runtime", "is", "closed", "to", "us"] => sim.runtime_answers(Answer::Unreachable),
        ["runtime", "goes", "on"] | ["runtime", "is", "quick"] | ["runtime", "is", "open", "to", "us"] => {
            sim.runtime_answers(Answer::Answers);
        }
        ["crio", "starts"] => sim.second_starts("crio"),
        ["second", "containerd", "starts"] => sim.second_starts("containerd"),
        ["crio", "dies"] | ["second", "containerd", "dies"] => sim.second_dies(),
        ["pod", name] => sim.pod(name),
        ["pod", name, "goes"] => sim.pod_goes(name),
        ["pod", name, "is", "deleted"] => sim.pod_is_deleted(name),
        ["pod", name, "has", names] => sim.pod_has(name, names),
        ["sandbox", name, "of", pod, "begins"] => sim.sandbox_begins(name, pod),
        ["sandbox", name, "of", pod, "before", "boot"] => sim.sandbox_before_boot(name, pod),
        ["sandbox", name, "runs"] => sim.sandbox_runs(name),
        ["sandbox", name, "of", pod, "on", networks @ ..] => {
            sim.sandbox_begins(name, pod);
            for network in networks.split(|word| *word == "and") {
                let [network, given] = network else { return Err("a network and its addresses".to_owned()) };
                sim.add(name, network, &addresses(given)?, Add::Succeeds);
            }
            sim.sandbox_runs(name);
        }
        ["sandbox", name, "of", pod, "under", under, "on", network, given] => {
            sim.sandbox_begins(name, pod);
            sim.under(name, Under::read(under).ok_or("under gvisor, gvisor-alone or kata")?);
            sim.add(name, network, &addresses(given)?, Add::Succeeds);
            sim.sandbox_runs(name);
        }
        ["vm", "of", name, "gives", "way"] => sim.first_process_gives_way(name),
        ["sandbox", name, "of", pod, "on-host"] => sim.host_sandbox(name, pod),
        ["own-address", name, address, ifname] => sim.own_address(name, one(address)?, ifname),
        ["check", name] => sim.ask_plugin(name, "CHECK"),
        ["status", name] => sim.ask_plugin(name, "STATUS"),
        ["add", name, network, "overtaken"] => sim.add_overtaken(name, network),
        ["add", name, network, "killed"] => sim.add_killed(name, network),
        ["add", name, network, given] => sim.add(name, network, &addresses(given)?, Add::Succeeds),
        ["add", name, network, given, "fails"] => sim.add(name, network, &addresses(given)?, Add::Fails),
        ["add", name, network, given, "fails-holding"] => {
            sim.add(name, network, &addresses(given)?, Add::FailsHolding);
        }
        ["add", name, network, given, "stops"] => sim.add(name, network, &addresses(given)?, Add::Stops),
        ["container", name, "in", sandbox, "starts"] => sim.container_starts(name, sandbox),
        ["container", _, "in", sandbox, "fails"] => sim.container_fails(sandbox),
        ["container", name, "in", sandbox, "exits", code] => {
            sim.container_exits(name, sandbox, code.parse().map_err(|_error| "an exit code")?);
        }
        ["container", name, "in", sandbox, "is", "stopped"] => sim.container_stops(name, sandbox),
        ["del", name, network, "in", "process", "of", other] => sim.del_in_process(name, network, other),
        ["del", name, network, "in", other] => sim.del_in(name, network, other),
        ["container", name, "in", sandbox, "is", how @ ("killed" | "ended"), "by", by] => {
            sim.container_is_killed(name, sandbox, by, if *how == "killed" { 9 } else { 15 });
        }
        ["stop", name, how @ ..] => sim.stop(name, del(how)?),
        ["remove", name, how @ ..] => sim.remove(name, del(how)?),
        ["kill", "pause", "of", name, "by", who] => {
            let death = match *who {
                "kubelet" => Death::Kubelet,
                "stranger" => Death::Stranger,
                "oom" => Death::OutOfMemory,
                "runtime" => Death::Runtime,
                _ => return Err("by kubelet, stranger, oom or runtime".to_owned()),
            };
            sim.pause_dies(name, death);
        }
        ["netns", "of", name, "lost"] => sim.netns_file_goes(name),
        ["cache", "of", name, "torn"] => sim.tear(name),
        ["cache", "of", _, "mended"] => sim.torn = None,
        ["cache", "of", _, "written"] => sim.write_out(),
        ["del", name, how @ ..] => sim.del(name, del(how)?),
        ["forget", name] => sim.forget(name),
        ["free", address] => sim.free(one(address)?),
        ["empty", address, "in", network] => sim.empty(network, one(address)?),
        [by @ ("kubelet" | "runtime" | "plugin"), "says", "of", pod, text @ ..] => {
            sim.says(by, pod, &text.join(" "))
        }
        ["lose", count] => sim.lost(Loss::LifecycleRing, count.parse().map_err(|_error| "a number")?),
        ["lose", count, "of", "containers"] => {
            sim.lost(Loss::BulkRing, count.parse().map_err(|_error| "a number")?)
        }
        ["unreadable"] => sim.readable = false,
        ["half-read"] => sim.whole = false,
        ["record", name] => sim.record(name),
        ["network", name, "unconfigured"] => {
            sim.unconfigured.insert((*name).to_owned());
        }
        ["configuration", "undecodable"] => sim.undecodable = true,
        ["configuration", "gone"] => sim.has_no_configuration = true,
        ["configuration", "repaired"] => {
            sim.undecodable = false;
            sim.has_no_configuration = false;
        }
        ["configuration", "read"] => sim.read_configuration(),
        ["plugin", name, "missing"] => sim.missing = Some((*name).to_owned()),
        ["plugin", _, "back"] => sim.missing = None,
        ["configuration", "half-read"] => sim.configuration_whole = false,
        ["plain", name, "on", network, given] => sim.plain(name, network, one(given)?),
        ["end"] => {}
        _ => return Err("no such event".to_owned()),
    }
    Ok(())
}

fn del(words: &[&str]) -> Result<Del, String> {
    match words {
        [] => Ok(Del::Succeeds),
        ["del-fails"] => Ok(Del::Fails),
        ["del-hollow"] => Ok(Del::Hollow),
        ["no-del"] => Ok(Del::Missing),
        _ => Err("del-fails, del-hollow or no-del".to_owned()),
    }
}

fn addresses(list: &str) -> Result<Vec<IpAddr>, String> {
    list.split(',').map(one).collect()
}

fn one(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_error| format!("{text} is no address"))
}

/// Returns a time that counts from the story's beginning, one second after boot.
fn at(text: &str) -> Result<Timestamp, String> {
    Ok(BEGIN + span(text)?)
}

/// Parses `90s`, `2m` or `1500ms`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).ok_or("a time has a unit")?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_error| "a time")?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        _ => Err("ms, s, m or h".to_owned()),
    }
}

fn compare(expected: &[String], drive: &Drive) -> Result<(), String> {
    let mut found: Vec<String> = drive.findings.iter().map(|it| line(it, drive)).collect();
    let mut missing = Vec::new();
    for it in expected {
        match found.iter().position(|line| fits(it, line)) {
            Some(place) => {
                found.remove(place);
            }
            None => missing.push(it),
        }
    }
    let mut text = String::new();
    for it in missing {
        _ = writeln!(text, "  not found: {it}");
    }
    for it in found {
        _ = writeln!(text, "  found:     {it}");
    }
    if text.is_empty() { Ok(()) } else { Err(text) }
}

/// Whether the found line has each expected word in this order. Words such as `since` may be left out.
fn fits(expected: &str, found: &str) -> bool {
    let mut found = found.split(' ');
    expected.split_whitespace().all(|word| found.by_ref().any(|other| other == word))
}

/// Returns a finding in a line: `confirmed leaked_address/del_blind 10.99.0.2 web-0 since 12s`
pub(crate) fn line(it: &Finding, drive: &Drive) -> String {
    let stage = match it.stage {
        Stage::Candidate => "candidate",
        Stage::Confirmed => "confirmed",
        Stage::Closed => "closed",
    };
    let severity = it.severity;
    let (sub, what) = match &it.kind {
        Kind::LeakedAddress(leaked) => (format!("{:?}", leaked.cause), leaked.address.to_string()),
        Kind::DuplicateSandbox(DuplicateSandbox { form, count }) => {
            (format!("{form:?}"), format!("x{count}"))
        }
        Kind::TeardownOutOfOrder(TeardownOutOfOrder { how, killer, .. }) => {
            (format!("{how:?}"), killer.as_ref().map(|by| by.comm.clone()).unwrap_or_default())
        }
        Kind::DuplicateAddress(DuplicateAddress { address, .. }) => (String::new(), address.to_string()),
        Kind::LostNetwork(LostNetwork { addresses, .. }) => {
            (String::new(), addresses.first().map(ToString::to_string).unwrap_or_default())
        }
        Kind::DuplicateContainer(DuplicateContainer { name, .. }) => (String::new(), name.clone()),
        Kind::AbandonedSandbox(AbandonedSandbox { container, .. }) => {
            (String::new(), container.clone().unwrap_or_default())
        }
        Kind::SandboxesReplaced(SandboxesReplaced { daemon, count, .. }) => {
            (String::new(), format!("{daemon} x{count}"))
        }
        Kind::RestartedInBulk(it) => {
            let killer = it.killer.as_ref().map(|by| &by.comm);
            let by = it.daemon.as_ref().or(killer).cloned().unwrap_or_default();
            let versions: Vec<&str> = it.was.iter().chain(&it.is).map(String::as_str).collect();
            (String::new(), format!("{by} {} of {} {}", it.containers, it.count, versions.join(" ")))
        }
        Kind::CniWrongDel(CniWrongDel { how, plugin, count, .. }) => {
            (format!("{how:?}"), format!("{plugin} x{count}"))
        }
        Kind::CniFailing(failing) => {
            let form = if failing.command == CniCommand::Del { "del" } else { "" };
            (form.to_owned(), format!("{} x{}", failing.plugin, failing.attempts))
        }
        Kind::CniSlow(CniSlow { plugin, command, .. }) => (String::new(), format!("{command} {plugin}")),
        Kind::AbandonedStore(AbandonedStore { network, count, .. }) => {
            (String::new(), format!("{network} x{count}"))
        }
        Kind::OwnerlessReservation(OwnerlessReservation { first, count, .. }) => {
            let first = first.first().map(ToString::to_string).unwrap_or_default();
            (String::new(), format!("{first} x{count}"))
        }
        Kind::UnverifiedRelease(UnverifiedRelease { plugin, count, .. }) => {
            (String::new(), format!("{plugin} x{count}"))
        }
        Kind::PoolExhaustion(pool) => (String::new(), format!("{} free {}", pool.network, pool.free)),
        Kind::BlindSpot(BlindSpot { spot, .. }) => (String::new(), format!("{spot:?}")),
        Kind::CniQueue(CniQueue { waiting, .. }) => (String::new(), waiting.to_string()),
        Kind::StuckStart(StuckStart { step, cause, plugin, config_file, addresses, .. }) => {
            let cause = cause.map(|cause| snake(&format!("{cause:?}"))).unwrap_or_default();
            let what = plugin.iter().chain(config_file).cloned();
            let what = what.chain(addresses.iter().map(ToString::to_string)).collect::<Vec<_>>();
            (format!("{step:?}"), format!("{cause} {}", what.join(" ")))
        }
        Kind::StuckStop(StuckStop { step, attempts, cache_file, .. }) => {
            let why = if cache_file.is_some() { "undecodable".to_owned() } else { format!("x{attempts}") };
            (format!("{step:?}"), why)
        }
        Kind::StaleRuntimeStatus(it) => (format!("{:?}", it.how), String::new()),
        Kind::MissedRuntimeEvent(it) => (format!("{:?}", it.event), String::new()),
        Kind::NodeNetworkUnready(it) => {
            let what = it.config_file.iter().chain(&it.plugin).map(String::as_str).collect::<Vec<_>>();
            let severity = snake(&format!("{severity:?}"));
            (format!("{:?}", it.how), format!("{severity} {} x{}", what.join(" "), it.pods))
        }
        Kind::DaemonFailing(it) => (it.exit_code.to_string(), format!("{} x{}", it.daemon, it.count)),
        Kind::RuntimeUnresponsive(it) => {
            let state = it.state.map(|state| format!("{state:?}")).unwrap_or_default();
            (
                state,
                format!(
                    "{} x{} {}",
                    it.process.iter().map(|it| it.comm.as_str()).collect::<String>(),
                    it.pods,
                    it.first.join(" ")
                ),
            )
        }
        Kind::PhantomSandbox(PhantomSandbox { left_on_record: Some(count), .. }) => {
            ("LeftOnRecord".to_owned(), format!("x{count}"))
        }
        _ => (String::new(), String::new()),
    };
    let sub = if sub.is_empty() { sub } else { format!("/{}", snake(&sub)) };
    let pod = it.pod.as_ref().and_then(|pod| pod.name.clone()).unwrap_or_default();
    let names: Vec<&str> = it.sandboxes.iter().filter_map(|id| drive.sim.name_of(id)).collect();
    let since = it.since.since(BEGIN).as_secs();
    let said = it.kind.said().first().map(|said| format!("says {}", said.text)).unwrap_or_default();
    let line =
        format!("{stage} {}{sub} {what} {pod} {} since {since}s {said}", it.kind.into_str(), names.join(" "));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn snake(camel: &str) -> String {
    let mut text = String::new();
    for letter in camel.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
