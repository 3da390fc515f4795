//! Each relation with the nearest findings that it must not join.

use super::*;

/// The runtime answers nothing since then.
fn unresponsive(since: u64) -> Finding {
    let runtime = "/run/containerd/containerd.sock".to_owned();
    let it = RuntimeUnresponsive {
        runtime,
        pods: 1,
        first: Vec::new(),
        process: None,
        state: None,
        threads: Vec::new(),
    };
    finding(it, &["socket"], &[], since)
}

/// A slow ADD of which it is known what it waits for.
fn waiting(form: CniWaitForm) -> Finding {
    let it = slow("ADD", true, "a", 6);
    let Kind::CniSlow(slow) = it.kind.clone() else { return it };
    let waits = Some(CniWait {
        process: Process::default(),
        after: Duration::ZERO,
        ended: false,
        form,
        function: None,
    });
    Finding { kind: CniSlow { waits, ..slow }.into(), ..it }
}

/// A daemon does not come up since then.
fn not_up(daemon: &str, since: u64) -> Finding {
    let it = DaemonFailing {
        daemon: daemon.to_owned(),
        plugins: Vec::new(),
        plugin_pod: None,
        count: 3,
        lasted: Duration::from_secs(9),
        down: false,
        killer: None,
        exit_code: 1,
        signal: None,
        oom: false,
        said: Vec::new(),
        unsaid: None,
    };
    finding(it, &[daemon], &[], since)
}

/// A container that this plugin needs does not come up since then.
fn plugin_not_up(plugin: &str, since: u64) -> Finding {
    let mut it = not_up("install-cni", since);
    let Kind::DaemonFailing(failing) = &mut it.kind else { panic!("{it:?}") };
    failing.plugins = vec![plugin.to_owned()];
    it
}

/// The runtime can make no network since then: for want of a plugin, or of a configuration.
fn unready(plugin: Option<&str>, since: u64) -> Finding {
    let how = match plugin {
        Some(_) => NetworkFaultForm::PluginMissing,
        None => NetworkFaultForm::NoConfiguration,
    };
    let it = NodeNetworkUnready {
        how,
        runtime: "containerd".to_owned(),
        folder: "/etc/cni/net.d".to_owned(),
        config_file: None,
        error: None,
        plugin: plugin.map(str::to_owned),
        folders: Vec::new(),
        pods: 0,
        first: Vec::new(),
    };
    finding(it, &[], &[], since)
}

/// A start that the kernel has seen nothing of since then.
fn silent_start(since: u64) -> Finding {
    let it = StuckStart {
        step: StartStep::Sandbox,
        sandboxes: 0,
        cause: None,
        plugin: None,
        network: None,
        folders: Vec::new(),
        config_file: None,
        addresses: Vec::new(),
        said: Vec::new(),
        unsaid: None,
    };
    finding(it, &["uid"], &[], since)
}

/// A stop whose DEL is not called from then on.
fn silent_stop(since: u64) -> Finding {
    let it = StuckStop {
        step: StopStep::Del,
        process: None,
        attempts: 0,
        plugin: None,
        exit_code: None,
        cache_file: None,
        mount: None,
        said: Vec::new(),
        unsaid: None,
    };
    finding(it, &["a"], &["a"], since)
}

fn abandoned(since: u64) -> Finding {
    finding(AbandonedSandbox { container: None, exit_code: None }, &["a"], &["a"], since)
}

fn replaced() -> Finding {
    let it = SandboxesReplaced { daemon: "containerd".to_owned(), count: 1, first: Vec::new() };
    finding(it, &["containerd"], &["a"], 5)
}

/// A process killed containers in several sandboxes.
fn killed_in_bulk(by: Option<u32>) -> Finding {
    let it = RestartedInBulk {
        daemon: by.is_none().then(|| "kubelet".to_owned()),
        was: None,
        is: None,
        killer: by.map(killer),
        containers: 3,
        count: 3,
        lasted: Duration::ZERO,
        first: Vec::new(),
    };
    finding(it, &["killer", "chaos"], &["a", "b", "c"], 5)
}

fn killer(pid: u32) -> Process {
    Process { key: TaskKey::new(pid, 7), parent: TaskKey::new(1, 1), comm: "chaos".to_owned() }
}

fn pause_killed_by(by: u32) -> Finding {
    let it = TeardownOutOfOrder { how: OutOfOrder::PauseKilled, killer: Some(killer(by)), signal: Some(9) };
    finding(it, &["a"], &["a"], 5)
}

/// Whether one led to the other.
fn leads(cause: &Finding, effect: &Finding) -> bool {
    let both = [cause.clone(), effect.clone()];
    let place = Incidents::of(&both).place(&effect.key).expect("it is one of these");
    place.causes.iter().any(|it| it.finding.key == cause.key)
}

/// The finding of slow calls names another call by now, which began later.
#[test]
fn a_cause_that_names_a_later_call_is_still_the_cause() {
    let effect = failing(CniCommand::Add, None, &["a"], 30);
    let cause = slow("ADD", true, "x", 200);
    assert!(!leads(&cause, &effect));
    assert!(leads(&Finding { opened_at: at(16), ..cause }, &effect));
}

/// Each relation joins its two findings, but not similar ones: findings of the same kinds whose effect shows
/// another cause.
#[test]
fn an_effect_itself_shows_that_it_came_of_its_cause() {
    let queue = || {
        let waiting = CniQueue { waiting: 30, oldest: Duration::from_secs(20), plugin: "bridge".to_owned() };
        finding(waiting, &["node"], &["a"], 5)
    };
    let full = "no IP addresses available in range set: 10.0.0.1-10.0.0.254";
    let unreachable = "dial tcp 10.0.0.1:443: connection refused";
    let add = |said: Option<&str>| failing(CniCommand::Add, said, &["a"], 30);
    let del = || failing(CniCommand::Del, None, &["x"], 20);
    let quick = |it: Finding| {
        let Kind::CniFailing(failing) = it.kind.clone() else { return it };
        Finding { kind: CniFailing { wasted: Duration::from_secs(1), ..failing }.into(), ..it }
    };
    let by_itself = |it: Finding| {
        let Kind::CniFailing(failing) = it.kind.clone() else { return it };
        Finding { kind: CniFailing { code: Some(1), ..failing }.into(), ..it }
    };
    let stopped = |attempts: u32, exit_code: Option<u32>, cache_file: Option<&str>| {
        let it = stop(StopStep::Del, Some("bridge"), "a", 21);
        let Kind::StuckStop(stop) = it.kind.clone() else { return it };
        let cache_file = cache_file.map(str::to_owned);
        Finding { kind: StuckStop { attempts, exit_code, cache_file, ..stop }.into(), ..it }
    };
    let of = |cause: Cause| leak(cause, "10.0.0.2", "a", 30);
    let with_blind_del =
        |cause: Cause| Finding { evidence: blind_teardown("a", "bridge", 5).evidence, ..of(cause) };
    let released = |count: u32, without_del: u32| {
        finding(UnverifiedRelease { plugin: "bridge".to_owned(), count, without_del }, &["bridge"], &[], 70)
    };
    let needless = || duplicate(Duplicate::AfterCompletion, &["x", "a"], 5);
    let twins = || duplicate(Duplicate::Concurrent, &["x", "a"], 5);
    let ownerless = |address: &str| {
        let first = vec![address.parse().expect("an address")];
        let network = Some("podnet".to_owned());
        let kind = StoreKind::HostLocal;
        let it = OwnerlessReservation { kind, network, path: "/x".to_owned(), count: 1, first };
        finding(it, &["podnet"], &[], 5)
    };
    let range = || pool("10.0.0.0/24", 0, 100);
    let later_address = |it: Finding| Finding { since: at(7200), opened_at: at(7260), ..it };
    let rows: Vec<(Finding, Finding, Twins)> = vec![
        (
            queue(),
            slow("ADD", true, "a", 6),
            vec![(closed(queue(), 90), slow("DEL", true, "a", 7200)), (queue(), waiting(CniWaitForm::Pause))],
        ),
        (
            slow("ADD", true, "a", 6),
            add(None),
            vec![
                (slow("DEL", true, "a", 6), add(None)),
                (slow("ADD", true, "a", 6), quick(add(None))),
                (slow("ADD", true, "a", 6), by_itself(add(None))),
                (closed(slow("ADD", true, "a", 6), 20), add(None)),
            ],
        ),
        (
            slow("ADD", true, "a", 6),
            stuck_start(StartStep::Network, None, 5),
            vec![
                (slow("ADD", false, "a", 6), stuck_start(StartStep::Network, None, 5)),
                (slow("ADD", true, "a", 6), stuck_start(StartStep::Container, None, 5)),
                (
                    slow("ADD", true, "a", 6),
                    stuck_start(StartStep::Network, Some(StartCause::PluginNotCalled), 5),
                ),
            ],
        ),
        (
            slow("ADD", true, "a", 2),
            wrong_del(WrongDelForm::AddKilled, &["a"], &[]),
            vec![
                (slow("ADD", true, "x", 2), wrong_del(WrongDelForm::AddKilled, &["a"], &[])),
                (slow("DEL", true, "a", 2), wrong_del(WrongDelForm::AddKilled, &["a"], &[])),
                (slow("ADD", true, "a", 2), wrong_del(WrongDelForm::ForeignNetns, &["a"], &[])),
            ],
        ),
        (
            range(),
            failing(CniCommand::Add, Some(full), &["a"], 200),
            vec![
                (range(), failing(CniCommand::Add, Some(unreachable), &["a"], 200)),
                (pool("10.0.0.0/24", 3, 100), failing(CniCommand::Add, Some(full), &["a"], 200)),
            ],
        ),
        (
            del(),
            stopped(3, Some(1), None),
            vec![
                (del(), stopped(0, None, Some("/var/lib/cni/results/podnet-a-eth0"))),
                (del(), stopped(3, Some(1), Some("/var/lib/cni/results/podnet-a-eth0"))),
                (del(), stopped(0, None, None)),
                (del(), stopped(1, None, None)),
            ],
        ),
        (del(), of(Cause::DelFailed), vec![(del(), of(Cause::DelMissing)), (del(), of(Cause::AddFailed))]),
        (replaced(), twins(), vec![(replaced(), duplicate(Duplicate::AfterCompletion, &["a", "x"], 6))]),
        (replaced(), stopped(0, None, None), vec![(replaced(), stop(StopStep::Del, None, "x", 21))]),
        (replaced(), of(Cause::DelMissing), vec![(replaced(), leak(Cause::DelMissing, "10.0.0.2", "x", 30))]),
        (replaced(), orphan_netns("a", 10), vec![(replaced(), orphan_netns("x", 10))]),
        (needless(), teardown("a", 7), vec![(twins(), teardown("a", 7)), (needless(), teardown("x", 7))]),
        (needless(), of(Cause::DelBlind), vec![(twins(), of(Cause::DelBlind))]),
        (needless(), orphan_netns("a", 10), vec![(twins(), orphan_netns("a", 10))]),
        (teardown("a", 5), of(Cause::DelBlind), vec![(teardown("a", 5), of(Cause::DelMissing))]),
        (
            blind_teardown("a", "bridge", 5),
            with_blind_del(Cause::DelFailed),
            vec![(teardown("a", 5), of(Cause::DelFailed))],
        ),
        (
            blind_teardown("a", "bridge", 5),
            released(3, 2),
            vec![(blind_teardown("a", "bridge", 5), released(3, 3))],
        ),
        (
            orphan(),
            of(Cause::DelMissing),
            vec![(orphan(), of(Cause::DelBlind)), (orphan(), of(Cause::DelFailed))],
        ),
        (orphan(), orphan_netns("a", 10), vec![(orphan(), orphan_netns("x", 10))]),
        (orphan(), cgroup(Some(true)), vec![(orphan(), cgroup(Some(false)))]),
        (
            wrong_del(WrongDelForm::AddOpen, &["a"], &[]),
            of(Cause::StaleRecord),
            vec![
                (wrong_del(WrongDelForm::AddOpen, &["a"], &[]), of(Cause::DelMissing)),
                (wrong_del(WrongDelForm::NodeNetns, &["a"], &[]), of(Cause::StaleRecord)),
            ],
        ),
        (
            wrong_del(WrongDelForm::AddKilled, &["a"], &[]),
            orphan_netns("a", 10),
            vec![(wrong_del(WrongDelForm::NodeNetns, &["a"], &[]), orphan_netns("a", 10))],
        ),
        (
            closed(wrong_del(WrongDelForm::ForeignNetns, &["a", "b"], &["10.0.0.3"]), 605),
            duplicate_address("10.0.0.3", &["b", "c"], 7200),
            vec![
                (
                    wrong_del(WrongDelForm::ForeignNetns, &["a", "b"], &["10.0.0.3"]),
                    duplicate_address("10.0.0.4", &["b", "c"], 60),
                ),
                // The one that had it is over by then.
                (
                    wrong_del(WrongDelForm::ForeignNetns, &["a", "b"], &["10.0.0.3"]),
                    duplicate_address("10.0.0.3", &["c", "d"], 60),
                ),
            ],
        ),
        (
            stuck_start(StartStep::Network, Some(StartCause::PluginNotCalled), 5),
            of(Cause::DelMissing),
            vec![
                (stuck_start(StartStep::Network, None, 5), of(Cause::DelBlind)),
                // The address was given back, and then to others.
                (
                    closed(stuck_start(StartStep::Network, Some(StartCause::PluginNotCalled), 5), 600),
                    later_address(leak(Cause::DelMissing, "10.0.0.2", "z", 7200)),
                ),
            ],
        ),
        (
            stop(StopStep::Del, None, "a", 5),
            of(Cause::DelMissing),
            vec![(stop(StopStep::Del, None, "a", 5), of(Cause::RuntimeEnded))],
        ),
        (
            stop(StopStep::Unmount, None, "a", 5),
            orphan_netns("a", 10),
            vec![(stop(StopStep::Unmount, None, "x", 5), orphan_netns("a", 10))],
        ),
        (
            stop(StopStep::Containers, None, "a", 5),
            cgroup(Some(true)),
            vec![
                (stop(StopStep::Containers, None, "a", 5), cgroup(Some(false))),
                (stop(StopStep::Del, None, "a", 5), cgroup(Some(true))),
            ],
        ),
        (of(Cause::DelMissing), range(), vec![(leak(Cause::DelMissing, "10.0.1.2", "a", 30), range())]),
        (ownerless("10.0.0.9"), range(), vec![(ownerless("10.0.1.9"), range())]),
        (
            not_up("containerd", 5),
            silent_start(5),
            vec![
                (not_up("containerd", 5), stuck_start(StartStep::Network, None, 5)),
                (closed(not_up("containerd", 5), 100), silent_start(300)),
                (not_up("containerd", 300), silent_start(5)),
            ],
        ),
        (
            not_up("kubelet", 5),
            stop(StopStep::Containers, None, "a", 5),
            vec![
                (not_up("containerd", 5), stop(StopStep::Containers, None, "a", 5)),
                (closed(not_up("kubelet", 5), 100), stop(StopStep::Containers, None, "a", 300)),
            ],
        ),
        (
            plugin_not_up("bridge", 5),
            stuck_start(StartStep::Network, None, 5),
            vec![
                (plugin_not_up("macvlan", 5), stuck_start(StartStep::Network, None, 5)),
                (plugin_not_up("bridge", 5), stuck_start(StartStep::Sandbox, None, 5)),
                (plugin_not_up("bridge", 5), silent_start(5)),
                (plugin_not_up("bridge", 300), stuck_start(StartStep::Network, None, 5)),
            ],
        ),
        (
            plugin_not_up("bridge", 5),
            stop(StopStep::Del, Some("bridge"), "a", 5),
            vec![
                (plugin_not_up("bridge", 5), silent_stop(5)),
                (plugin_not_up("macvlan", 5), stop(StopStep::Del, Some("bridge"), "a", 5)),
            ],
        ),
        (
            plugin_not_up("bridge", 5),
            failing(CniCommand::Add, None, &["a"], 5),
            vec![
                (plugin_not_up("macvlan", 5), failing(CniCommand::Add, None, &["a"], 5)),
                (not_up("kubelet", 5), failing(CniCommand::Add, None, &["a"], 5)),
                (closed(plugin_not_up("bridge", 5), 100), failing(CniCommand::Add, None, &["a"], 300)),
            ],
        ),
        (
            plugin_not_up("flannel", 5),
            unready(None, 5),
            vec![
                (not_up("kubelet", 5), unready(None, 5)),
                (plugin_not_up("flannel", 5), unready(Some("portmap"), 5)),
                (plugin_not_up("whereabouts", 5), unready(None, 5)),
            ],
        ),
        (
            unready(None, 5),
            stuck_start(StartStep::Sandbox, Some(StartCause::NotConfigured), 5),
            vec![
                (
                    unready(Some("portmap"), 5),
                    stuck_start(StartStep::Sandbox, Some(StartCause::NotConfigured), 5),
                ),
                (unready(None, 5), stuck_start(StartStep::Network, Some(StartCause::PluginNotCalled), 5)),
                (unready(None, 5), silent_start(5)),
                (
                    closed(unready(None, 5), 100),
                    stuck_start(StartStep::Sandbox, Some(StartCause::NotConfigured), 300),
                ),
            ],
        ),
        (
            unready(Some("bridge"), 5),
            stuck_start(StartStep::Network, Some(StartCause::PluginNotCalled), 5),
            vec![(
                unready(Some("portmap"), 5),
                stuck_start(StartStep::Network, Some(StartCause::PluginNotCalled), 5),
            )],
        ),
        (
            unready(Some("bridge"), 5),
            silent_stop(5),
            vec![(unready(Some("bridge"), 5), stop(StopStep::Del, Some("bridge"), "a", 5))],
        ),
        (
            killed_in_bulk(Some(7)),
            pause_killed_by(7),
            vec![
                (killed_in_bulk(Some(7)), pause_killed_by(8)),
                (killed_in_bulk(None), pause_killed_by(7)),
                (killed_in_bulk(Some(7)), teardown("a", 5)),
            ],
        ),
        (
            unresponsive(5),
            silent_start(5),
            vec![
                (unresponsive(5), stuck_start(StartStep::Network, None, 5)),
                (closed(unresponsive(5), 100), silent_start(300)),
            ],
        ),
        (
            unresponsive(5),
            silent_stop(5),
            vec![
                (unresponsive(5), stop(StopStep::Del, Some("bridge"), "a", 5)),
                (unresponsive(5), stop(StopStep::Containers, None, "a", 5)),
            ],
        ),
        (
            unresponsive(5),
            abandoned(5),
            vec![(closed(unresponsive(5), 100), abandoned(300)), (unresponsive(300), abandoned(5))],
        ),
        (
            unresponsive(5),
            waiting(CniWaitForm::Input),
            vec![
                (unresponsive(5), waiting(CniWaitForm::FileLock)),
                (unresponsive(5), slow("ADD", true, "a", 6)),
            ],
        ),
    ];
    let kinds = |cause: &Finding, effect: &Finding| (cause.kind.into_str(), effect.kind.into_str());
    for (cause, effect, twins) in &rows {
        assert!(leads(cause, effect), "{:?} and {:?}", cause.kind, effect.kind);
        for (cause, effect) in twins {
            assert!(!leads(cause, effect), "{:?} and {:?}", cause.kind, effect.kind);
        }
    }
    let tried: BTreeSet<_> = rows.iter().map(|(cause, effect, _)| kinds(cause, effect)).collect();
    let known: BTreeSet<_> = RELATIONS.iter().map(|it| (it.cause.into_str(), it.effect.into_str())).collect();
    assert_eq!(tried, known);
}
