//! CNI calls: a runtime's own are known by nothing that a container could arrange, and told to the byte; nothing else
//! of an environment is.

pub(crate) mod call;
mod form;
mod record;

use anyhow::{Context as _, Result, ensure};
use probe_user::model::fact::{CniCalled, CniVariables, Fact, Observation, Origin};
use tests::live::{Live, Shared};

use self::call::{Environment, Rights, Runtime};
use crate::container::{Container, new_id};

/// The call for a container id.
fn call<'a>(seen: &'a [Observation], id: &str) -> Option<(Origin, &'a CniCalled)> {
    seen.iter().find_map(|one| match &one.fact {
        Fact::CniCalled(call) if call.variables.container_id.as_deref() == Some(id) => {
            Some((one.origin, call))
        }
        _ => None,
    })
}

/// Makes calls and gives what was told of them.
fn told_of(calls: impl FnOnce(&Live, &mut Runtime) -> Result<()>) -> Result<Vec<Observation>> {
    let mut live = Shared::start()?;
    calls(&live, &mut Runtime::start()?)?;
    live.settled()
}

#[test]
fn a_runtimes_call_is_told_with_its_variables_and_no_others() -> Result<()> {
    let id = new_id()?;
    let environment = Environment::of_add(&id).with("CNI_PATH", "/opt/cni/bin:/usr/lib/cni").amid(60 << 10);
    let mut runtime_pid = 0;
    let seen = told_of(|_, runtime| {
        runtime_pid = runtime.call(&environment, &[])?;
        Ok(())
    })?;
    let (origin, told) = call(&seen, &id).context("the call is not told")?;
    ensure!(told.host && origin == Origin::Kernel && !told.env_truncated, "{told:?}");
    let caller = told.caller.as_ref().context("no caller is told")?;
    ensure!((caller.key.pid, &*caller.comm) == (runtime_pid, "containerd"), "{told:?}");
    ensure!(told.filename.ends_with("/bridge") && told.task.comm == "bridge", "{told:?}");
    let value = |name| environment.value(name);
    let expected = CniVariables {
        command: "ADD".to_owned(),
        container_id: value("CNI_CONTAINERID"),
        netns: value("CNI_NETNS"),
        ifname: value("CNI_IFNAME"),
        args: value("CNI_ARGS"),
        path: value("CNI_PATH"),
    };
    ensure!(told.variables == expected, "{told:?}");
    let status = seen.iter().find_map(|one| match &one.fact {
        Fact::Exited(exited) if exited.task.key == told.task.key => Some(exited.status),
        _ => None,
    });
    ensure!(status == Some(5 << 8), "the plugin's end: {status:?}");
    Ok(())
}

#[test]
fn an_empty_variable_is_not_an_absent_one() -> Result<()> {
    let (empty, absent) = (new_id()?, new_id()?);
    let seen = told_of(|_, runtime| {
        runtime.call(&Environment::of_add(&empty).with("CNI_NETNS", ""), &[])?;
        runtime.call(&Environment::of_add(&absent).without("CNI_NETNS"), &[])?;
        Ok(())
    })?;
    let netns = |id| call(&seen, id).map(|(_, told)| told.variables.netns.clone());
    ensure!(netns(&empty) == Some(Some(String::new())), "{:?}", netns(&empty));
    ensure!(netns(&absent) == Some(None), "{:?}", netns(&absent));
    Ok(())
}

/// With the right name, arguments and environment.
#[test]
fn nothing_else_passes_for_a_runtimes_call() -> Result<()> {
    let ids = [(); 8].map(|()| new_id()).into_iter().collect::<Result<Vec<_>>>()?;
    let [plugin_inside, all_inside, no_runtime, mounts, pids, user, lent, taken] = &ids[..] else {
        unreachable!("eight ids")
    };
    let seen = told_of(|live, runtime| {
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
        let (origin, told) = call(&seen, id).context("a call is not told")?;
        ensure!(!told.host && origin == Origin::Delegated, "{told:?}");
    }
    Ok(())
}

#[test]
fn what_is_beyond_the_bound_is_told_to_be_missing() -> Result<()> {
    let (first, many) = (new_id()?, new_id()?);
    let seen = told_of(|_, runtime| {
        runtime.call(&Environment::of_add(&first).before(200 << 10, 100), &[])?;
        runtime.call(&Environment::of_add(&many).before(40 << 10, 20), &[])?;
        Ok(())
    })?;
    for id in [&first, &many] {
        let (_, told) = call(&seen, id).context("the call is not told")?;
        ensure!(told.host && told.env_truncated && told.variables.command == "ADD", "{told:?}");
    }
    Ok(())
}
