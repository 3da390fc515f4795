//! CNI calls. The agent recognises a runtime's own call by properties that no container can arrange. It
//! reports the call's CNI variables and its place in a trace byte for byte, and no other variable of the
//! environment.

pub(crate) mod call;
mod form;
mod record;

use anyhow::{Context as _, Result, ensure};
use probe_user::model::fact::{CniCalled, CniVariables, Fact, Observation, Origin};
use tests::live::{Live, Shared};

use self::call::{Environment, Rights, Runtime};
use crate::container::{Container, new_id};

/// Returns the reported call with this container id.
fn call<'a>(seen: &'a [Observation], id: &str) -> Option<(Origin, &'a CniCalled)> {
    seen.iter().find_map(|one| match &one.fact {
        Fact::CniCalled(call) if call.variables.container_id.as_deref() == Some(id) => {
            Some((one.origin, call))
        }
        _ => None,
    })
}

/// Makes calls and returns all observations.
fn observe(calls: impl FnOnce(&Live, &mut Runtime) -> Result<()>) -> Result<Vec<Observation>> {
    let mut live = Shared::start()?;
    calls(&live, &mut Runtime::start()?)?;
    live.settled()
}

#[test]
fn a_runtimes_call_is_reported_with_its_variables_and_no_others() -> Result<()> {
    let id = new_id()?;
    let environment = Environment::of_add(&id)
        .with("CNI_PATH", "/opt/cni/bin:/usr/lib/cni")
        .with("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .with("TRACESTATE", "vendor=1")
        .amid(80 << 10);
    ensure!(environment.len() > 200, "{} variables", environment.len());
    let mut runtime_pid = 0;
    let seen = observe(|_, runtime| {
        runtime_pid = runtime.call(&environment, &[])?;
        Ok(())
    })?;
    let (origin, call_seen) = call(&seen, &id).context("the call is not reported")?;
    ensure!(call_seen.host && origin == Origin::Kernel && !call_seen.env_truncated, "{call_seen:?}");
    let caller = call_seen.caller.as_ref().context("no caller is reported")?;
    ensure!((caller.key.pid, &*caller.comm) == (runtime_pid, "containerd"), "{call_seen:?}");
    ensure!(call_seen.filename.ends_with("/bridge") && call_seen.task.comm == "bridge", "{call_seen:?}");
    let value = |name| environment.value(name);
    let expected = CniVariables {
        command: "ADD".to_owned(),
        container_id: value("CNI_CONTAINERID"),
        netns: value("CNI_NETNS"),
        ifname: value("CNI_IFNAME"),
        args: value("CNI_ARGS"),
        path: value("CNI_PATH"),
        traceparent: value("TRACEPARENT"),
        tracestate: value("TRACESTATE"),
    };
    ensure!(call_seen.variables == expected, "{call_seen:?}");
    let status = seen.iter().find_map(|one| match &one.fact {
        Fact::Exited(exited) if exited.task.key == call_seen.task.key => Some(exited.status),
        _ => None,
    });
    ensure!(status == Some(5 << 8), "the plugin's end: {status:?}");
    Ok(())
}

#[test]
fn an_empty_variable_is_not_an_absent_one() -> Result<()> {
    let (empty, absent) = (new_id()?, new_id()?);
    let seen = observe(|_, runtime| {
        runtime.call(&Environment::of_add(&empty).with("CNI_NETNS", ""), &[])?;
        runtime.call(&Environment::of_add(&absent).without("CNI_NETNS"), &[])?;
        Ok(())
    })?;
    let netns = |id| call(&seen, id).map(|(_, call_seen)| call_seen.variables.netns.clone());
    ensure!(netns(&empty) == Some(Some(String::new())), "{:?}", netns(&empty));
    ensure!(netns(&absent) == Some(None), "{:?}", netns(&absent));
    Ok(())
}

/// What is too long is cut one byte after the longest value that counts.
#[test]
fn hostile_values_of_a_trace_change_nothing_else() -> Result<()> {
    let long = "0".repeat(50 << 10);
    let values = ["", "-", "00-\u{1b}[2J\n\u{e9}", "CNI_COMMAND=DEL", &long[..55], &long];
    let calls = values.iter().map(|value| Ok((new_id()?, *value))).collect::<Result<Vec<_>>>()?;
    let seen = observe(|_, runtime| {
        for (id, value) in &calls {
            let add = Environment::of_add(id);
            runtime.call(&add.with("TRACEPARENT", value).with("TRACESTATE", value), &[])?;
        }
        Ok(())
    })?;
    for (id, given) in &calls {
        let (_, call_seen) = call(&seen, id).context("a call is not reported")?;
        let add = Environment::of_add(id);
        let cut = |longest: usize| Some(given.get(..longest).unwrap_or(given).to_owned());
        let expected = CniVariables {
            command: "ADD".to_owned(),
            container_id: Some(id.clone()),
            netns: add.value("CNI_NETNS"),
            ifname: add.value("CNI_IFNAME"),
            args: add.value("CNI_ARGS"),
            path: None,
            traceparent: cut(56),
            tracestate: cut(513),
        };
        ensure!(call_seen.host && call_seen.variables == expected, "{call_seen:?}");
    }
    Ok(())
}

/// Programs with a runtime's name, arguments and environment that are not the node's runtime.
#[test]
fn nothing_else_passes_for_a_runtimes_call() -> Result<()> {
    let ids = [(); 8].map(|()| new_id()).into_iter().collect::<Result<Vec<_>>>()?;
    let [plugin_inside, all_inside, no_runtime, mounts, pids, user, lent, taken] = &ids[..] else {
        unreachable!("eight ids")
    };
    let seen = observe(|live, runtime| {
        let container = Container::create(live.hierarchy())?;
        runtime.call(&Environment::of_add(plugin_inside), &container.enter()?)?;
        Runtime::start_by(&container.enter()?)?.call(&Environment::of_add(all_inside), &[])?;
        Runtime::start_as("kubelet-not")?.call(&Environment::of_add(no_runtime), &[])?;
        runtime.call(&Environment::of_add(mounts), &["unshare", "--mount"].map(str::to_owned))?;
        runtime.call(&Environment::of_add(pids), &["unshare", "--pid", "--fork"].map(str::to_owned))?;
        for (id, rights) in [(user, Rights::Own), (lent, Rights::Lent), (taken, Rights::Taken)] {
            Runtime::start_by_user(rights)?.call(&Environment::of_add(id), &[])?;
        }
        Ok(())
    })?;
    for id in &ids {
        let (origin, call_seen) = call(&seen, id).context("a call is not reported")?;
        ensure!(!call_seen.host && origin == Origin::Delegated, "{call_seen:?}");
    }
    Ok(())
}

#[test]
fn an_environment_beyond_the_bound_is_reported_as_truncated() -> Result<()> {
    let (first, many) = (new_id()?, new_id()?);
    let seen = observe(|_, runtime| {
        runtime.call(&Environment::of_add(&first).before(200 << 10, 100), &[])?;
        runtime.call(&Environment::of_add(&many).before(40 << 10, 20), &[])?;
        Ok(())
    })?;
    for id in [&first, &many] {
        let (_, call_seen) = call(&seen, id).context("the call is not reported")?;
        ensure!(
            call_seen.host && call_seen.env_truncated && call_seen.variables.command == "ADD",
            "{call_seen:?}"
        );
    }
    Ok(())
}
