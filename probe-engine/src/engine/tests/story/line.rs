//! The event stream as short lines: time, event, and `[pod sandbox container]`.

use std::fmt::Write as _;

use crate::model::{
    change::{Change, ChangeKind, End, Output, Question},
    fact::Origin,
};

/// `5 netns.created 4026532177 by containerd [default/web-0 a]`
pub(in crate::engine::tests) fn line(output: &Output) -> String {
    match output {
        Output::Question(Question::Container { id }) => format!("? container {}", &id.as_str()[..1]),
        Output::Question(Question::Pod { uid }) => format!("? pod {}", &uid.as_str()[..8]),
        Output::Question(Question::Expected { uid }) => format!("? expected {}", &uid.as_str()[..8]),
        Output::Question(Question::Watch { netns, by, unheard_since: _ }) => {
            format!("? watch {} {}", netns.inode, by.comm).trim_end().to_owned()
        }
        Output::Question(Question::Relist) => "? relist".to_owned(),
        Output::Question(Question::Netns { path }) => format!("? netns {path}"),
        Output::Question(Question::ProcessNetns { pid }) => format!("? netns of process {pid}"),
        Output::Question(Question::Held { holder, address, .. }) => {
            format!("? held {address} {}", &holder.container.as_str()[..1])
        }
        Output::Question(Question::Records) => "? records".to_owned(),
        Output::Question(Question::Statuses) => "? statuses".to_owned(),
        Output::Question(Question::Process { process }) => format!("? process {}", process.pid),
        Output::Question(Question::Program { path }) => format!("? program {path}"),
        Output::Question(Question::Message { container, .. }) => {
            format!("? message {}", &container.as_str()[..1])
        }
        Output::Question(Question::ImageWork { container, from, until }) => {
            format!("? image {} {}..{}", &container.as_str()[..1], from.0 / 1_000_000, until.0 / 1_000_000)
        }
        Output::Question(Question::HeldRequests { sandbox, from, until }) => {
            format!("? held {} {}..{}", &sandbox.as_str()[..1], from.0 / 1_000_000, until.0 / 1_000_000)
        }
        Output::Question(Question::Words { uid, .. }) => format!("? words {uid}"),
        Output::Question(Question::DaemonWords { daemon, .. }) => format!("? words of {daemon}"),
        Output::Question(Question::Pressure { path, .. }) => format!("? pressure {path}"),
        Output::Change(change) => line_of(change),
    }
}

fn line_of(change: &Change) -> String {
    let at = change.at.0 / 1_000_000;
    let mut text = format!("{at} {}", change.what.into_str());
    let netns = change.context.netns.map_or(0, |netns| netns.inode);
    let path =
        change.context.cgroup.as_ref().map_or("", |cgroup| cgroup.path.rsplit('/').next().unwrap_or(""));
    let short = |text: &str| text.chars().take(8).collect::<String>();
    let detail = match &change.what {
        ChangeKind::ProcessExec { filename, .. } => filename.clone(),
        ChangeKind::ProcessExit { process, end } => format!("{} {}{}", process.comm, end.code, killer(end)),
        ChangeKind::CniStarted { call } => {
            let by = call.called_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{} {}{by}", call.command, call.plugin)
        }
        ChangeKind::CniFinished { call, end, duration } => {
            let code = end.as_ref().map_or("?".to_owned(), |end| end.code.to_string());
            format!("{} {} -> {code} in {} ms", call.command, call.plugin, duration.as_millis())
        }
        ChangeKind::NetnsCreated { .. }
        | ChangeKind::NetnsDestroyed { .. }
        | ChangeKind::NetnsFreed { .. } => netns.to_string(),
        ChangeKind::CgroupCreated { .. } | ChangeKind::CgroupEmptied | ChangeKind::CgroupRemoved { .. } => {
            short(path)
        }
        ChangeKind::AddressAdded { address, ifname } | ChangeKind::AddressRemoved { address, ifname } => {
            format!("{address} {ifname} {netns}")
        }
        ChangeKind::SandboxCreated | ChangeKind::PodFirstSeen => String::new(),
        ChangeKind::SandboxReady { since_created } => {
            since_created.map(|span| format!("{} ms", span.as_millis())).unwrap_or_default()
        }
        ChangeKind::SandboxStopped { why } => format!("{why:?}"),
        ChangeKind::ContainerStarted { process } => process.comm.clone(),
        ChangeKind::ContainerListening { process, socket, since_started } => {
            format!("{} {} {} ms", process.comm, socket.port, since_started.as_millis())
        }
        ChangeKind::ContainerExited { end, ran, .. } => {
            format!("{}{} {:?}", end.code, killer(end), ran.map(|ran| ran.as_millis()))
        }
        ChangeKind::PodStarted(it) => format!("{} ms", it.total().as_millis()),
        ChangeKind::PodGone { lived } => format!("{} ms", lived.as_millis()),
        ChangeKind::FindingOpened(it) | ChangeKind::FindingConfirmed(it) | ChangeKind::FindingClosed(it) => {
            it.key.to_string()
        }
        ChangeKind::Gap { what, count, lasted: _ } => format!("{what:?} {count}"),
    };
    if !detail.is_empty() {
        write!(text, " {detail}").expect("memory");
    }
    let context = &change.context;
    let pod = context.pod.as_ref().map(|pod| match (&pod.namespace, &pod.name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => "unnamed".to_owned(),
    });
    let sandbox = context.sandbox.as_ref().map(|id| id.as_str()[..1].to_owned());
    let container = context.container.as_ref().map(|it| {
        format!(
            "{}{}",
            &it.id.as_str()[..1],
            it.name.as_deref().map(|name| format!("={name}")).unwrap_or_default()
        )
    });
    let about: Vec<String> = [pod, sandbox, container].into_iter().flatten().collect();
    if !about.is_empty() {
        write!(text, " [{}]", about.join(" ")).expect("memory");
    }
    match change.origin {
        Origin::Kernel => {}
        Origin::Netlink | Origin::Listed | Origin::Delegated | Origin::Cri | Origin::Agent => {
            write!(text, " {:?}", change.origin).expect("memory");
        }
    }
    if change.late {
        text.push_str(" late");
    }
    text
}

fn killer(end: &End) -> String {
    let by = end.killer.as_ref().map(|killer| format!(" killed by {}", killer.comm)).unwrap_or_default();
    if end.oom { format!("{by} oom") } else { by }
}
