//! A CNI plugin that finds a pod's address through its network namespace. It follows the specification. If
//! the namespace is lost before DEL, it cannot find the address, and the address leaks.
//!
//! It gives the next free address of a range to an interface of the pod, and records it in a directory. There
//! is a file for each address with the sandbox's id and the interface's name. The configuration can make
//! calls fail.
//!
//! Invariant: the plugin finds an address only in the namespace. The sandbox ids in the files are for other
//! readers.

mod link;
mod settings;
mod store;

use std::{
    fs::{self, File},
    io::Read,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

pub use settings::{Attachment, Faults, Range, Settings, Times};
pub use store::{Counts, Store};

/// The plugin's type in a configuration.
pub const TYPE: &str = "keyed";

/// The specification's own error codes. Codes from 100 on are the plugin's.
const INVALID_ENVIRONMENT: u32 = 4;
const INVALID_CONFIGURATION: u32 = 7;
const NOT_AVAILABLE: u32 = 50;
const FAILED: u32 = 100;
const MADE_TO_FAIL: u32 = 101;

const VERSIONS: [&str; 5] = ["0.3.1", "0.4.0", "1.0.0", "1.0.1", "1.1.0"];

/// The result of a call.
#[derive(Debug)]
pub struct Answer {
    /// The text for standard output, if any.
    output: Option<Value>,
    succeeded: bool,
}

impl Answer {
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.output.as_ref().map(Value::to_string)
    }

    #[must_use]
    pub fn is_success(&self) -> bool {
        self.succeeded
    }
}

/// An error in the form of the specification.
#[derive(Debug)]
struct Failure {
    code: u32,
    error: anyhow::Error,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: FAILED, error }
    }
}

fn failure(code: u32) -> impl Fn(anyhow::Error) -> Failure {
    move |error| Failure { code, error }
}

/// The runtime's variables in the environment.
struct Call {
    container: String,
    arguments: String,
    netns: PathBuf,
    interface: String,
}

/// Does what the environment and the configuration request.
pub fn answer(variable: &dyn Fn(&str) -> String, configuration: impl Read) -> Answer {
    let mut version = "0.4.0".to_owned();
    let done = Settings::read(configuration).map_err(failure(INVALID_CONFIGURATION)).and_then(|settings| {
        version.clone_from(&settings.cni_version);
        perform(variable, &settings)
    });
    match done {
        Ok(output) => Answer { output, succeeded: true },
        Err(Failure { code, error }) => {
            let output =
                json!({ "cniVersion": version, "code": code, "msg": format!("{error:#}"), "details": "" });
            Answer { output: Some(output), succeeded: false }
        }
    }
}

fn perform(variable: &dyn Fn(&str) -> String, settings: &Settings) -> Result<Option<Value>, Failure> {
    let call = || {
        let call = Call {
            container: variable("CNI_CONTAINERID"),
            arguments: variable("CNI_ARGS"),
            netns: PathBuf::from(variable("CNI_NETNS")),
            interface: variable("CNI_IFNAME"),
        };
        if call.container.is_empty() || call.interface.is_empty() {
            return Err(failure(INVALID_ENVIRONMENT)(anyhow!("CNI_CONTAINERID or CNI_IFNAME is missing")));
        }
        Ok(call)
    };
    match variable("CNI_COMMAND").as_str() {
        "ADD" => add(&call()?, settings).map(Some),
        "DEL" => delete(&call()?, settings).map(|()| None),
        "CHECK" => check(&call()?, settings).map(|()| None).map_err(Failure::from),
        "GC" => collect(settings).map(|()| None).map_err(Failure::from),
        "STATUS" => status(settings).map(|()| None).map_err(failure(NOT_AVAILABLE)),
        "VERSION" => Ok(Some(json!({ "cniVersion": settings.cni_version, "supportedVersions": VERSIONS }))),
        other => Err(failure(INVALID_ENVIRONMENT)(anyhow!("CNI_COMMAND is {other:?}"))),
    }
}

fn add(call: &Call, settings: &Settings) -> Result<Value, Failure> {
    let faults = settings.faults_of(&call.arguments);
    if let Some(file) = &settings.subnet_file {
        fs::metadata(file)
            .with_context(|| format!("failed to load flannel 'subnet.env' file: {}", file.display()))?;
    }
    thread::sleep(Duration::from_millis(faults.add_takes_ms));
    let (address, is_made_to_fail) = {
        let mut store = Store::lock(settings.store()?)?;
        let is_made_to_fail = faults.adds_fail.includes(store.counts().adds_failed);
        store.count(|counts| {
            counts.adds += 1;
            counts.adds_failed += u64::from(is_made_to_fail);
        })?;
        if is_made_to_fail && !faults.failed_adds_reserve {
            return Err(failure(MADE_TO_FAIL)(anyhow!(
                "this ADD is configured to fail before it has an address"
            )));
        }
        (store.reserve(settings.range()?, &call.container, &call.interface)?, is_made_to_fail)
    };
    if is_made_to_fail {
        return Err(failure(MADE_TO_FAIL)(anyhow!("this ADD is configured to fail with {address} reserved")));
    }
    if let Err(error) = connect(call, settings.range()?, address) {
        // The caller gets the first error.
        let _ = Store::lock(settings.store()?).and_then(|store| store.release(address));
        return Err(error.into());
    }
    thread::sleep(Duration::from_millis(faults.add_continues_ms));
    Ok(result(call, settings, address)?)
}

fn connect(call: &Call, range: Range, address: Ipv4Addr) -> Result<()> {
    enter(&call.netns)?;
    link::make(&call.interface, address, range.length())
}

fn result(call: &Call, settings: &Settings, address: Ipv4Addr) -> Result<Value> {
    let range = settings.range()?;
    let mut ip = json!({
        "interface": 0,
        "address": format!("{address}/{}", range.length()),
        "gateway": range.gateway().to_string(),
    });
    // Version 1.0.0 dropped this field. Older versions need it.
    if settings.cni_version.starts_with("0.") {
        ip["version"] = json!("4");
    }
    let interface = json!({ "name": call.interface, "sandbox": call.netns });
    Ok(json!({ "cniVersion": settings.cni_version, "interfaces": [interface], "ips": [ip], "dns": {} }))
}

/// Without a namespace the plugin cannot find an address. By the specification that is no error.
fn delete(call: &Call, settings: &Settings) -> Result<(), Failure> {
    let mut store = Store::lock(settings.store()?)?;
    if call.netns.as_os_str().is_empty() || !call.netns.exists() {
        store.count(|counts| counts.dels_blind += 1)?;
        return Ok(());
    }
    if settings.faults_of(&call.arguments).dels_fail.includes(store.counts().dels_failed) {
        store.count(|counts| counts.dels_failed += 1)?;
        return Err(failure(MADE_TO_FAIL)(anyhow!("this DEL is configured to fail")));
    }
    enter(&call.netns)?;
    for address in link::addresses(&call.interface)? {
        store.release(address)?;
    }
    link::remove(&call.interface)?;
    Ok(store.count(|counts| counts.dels += 1)?)
}

fn check(call: &Call, settings: &Settings) -> Result<()> {
    enter(&call.netns)?;
    let addresses = link::addresses(&call.interface)?;
    ensure!(!addresses.is_empty(), "{} has no address in {}", call.interface, call.netns.display());
    let held = Store::read(settings.store()?)?;
    for address in addresses {
        let holder = held.get(&address).with_context(|| format!("{address} is not in the store"))?;
        ensure!(holder.container == call.container, "{address} is held by {}", holder.container);
    }
    Ok(())
}

/// Frees the addresses that no valid attachment holds.
fn collect(settings: &Settings) -> Result<()> {
    let valid = settings.valid_attachments.as_ref().context("no cni.dev/valid-attachments were given")?;
    let store = Store::lock(settings.store()?)?;
    for (address, holder) in Store::read(settings.store()?)? {
        if !valid.contains(&holder) {
            store.release(address)?;
        }
    }
    Ok(())
}

fn status(settings: &Settings) -> Result<()> {
    let (store, range) = (Store::lock(settings.store()?)?, settings.range()?);
    store.free(range).map(drop)
}

/// Moves this process into the pod's network namespace.
fn enter(netns: &Path) -> Result<()> {
    let file =
        File::open(netns).with_context(|| format!("open the network namespace {}", netns.display()))?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("enter the network namespace {}", netns.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn ask(command: &str, netns: &str, configuration: &Value) -> Answer {
        let variables = BTreeMap::from([
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "sandbox"),
            ("CNI_NETNS", netns),
            ("CNI_IFNAME", "eth0"),
        ]);
        let variable = |name: &str| variables.get(name).copied().unwrap_or_default().to_owned();
        answer(&variable, configuration.to_string().as_bytes())
    }

    fn configuration(store: &Path, faults: &Value) -> Value {
        json!({
            "cniVersion": "0.4.0", "name": "n", "type": "keyed", "store": store, "range": "10.9.0.0/29",
            "faults": faults,
        })
    }

    fn output(answer: &Answer) -> Value {
        answer.output.clone().unwrap_or_default()
    }

    #[test]
    fn a_del_without_a_namespace_succeeds_and_frees_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("addresses");
        let configuration = configuration(&store, &json!({ "dels_fail": "always" }));
        Store::lock(&store).unwrap().reserve("10.9.0.0/29".parse().unwrap(), "sandbox", "eth0").unwrap();
        for netns in ["", "/run/netns/is-not-there"] {
            let answer = ask("DEL", netns, &configuration);
            assert!(answer.is_success() && answer.text().is_none(), "{answer:?}");
        }
        assert_eq!(Store::read(&store).unwrap().len(), 1);
        assert_eq!(Store::lock(&store).unwrap().counts().dels_blind, 2);
    }

    #[test]
    fn an_add_fails_as_often_as_configured() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("addresses");
        let configured = |reserve: bool| {
            configuration(&store, &json!({ "adds_fail": { "first": 2 }, "failed_adds_reserve": reserve }))
        };
        for (reserve, held) in [(false, 0), (true, 1)] {
            let answer = ask("ADD", "/run/netns/is-not-there", &configured(reserve));
            assert!(!answer.is_success());
            assert_eq!(output(&answer)["code"], MADE_TO_FAIL);
            assert_eq!(Store::read(&store).unwrap().len(), held);
        }
        // The third ADD fails by itself and frees its address.
        let answer = ask("ADD", "/run/netns/is-not-there", &configured(true));
        assert_eq!((answer.is_success(), &output(&answer)["code"]), (false, &json!(FAILED)));
        assert_eq!(Store::read(&store).unwrap().len(), 1);
        let counts = *Store::lock(&store).unwrap().counts();
        assert_eq!((counts.adds, counts.adds_failed), (3, 2));
    }

    #[test]
    fn an_add_waits_for_the_subnet_s_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut configuration = configuration(&folder.path().join("addresses"), &json!({}));
        let file = folder.path().join("subnet.env");
        configuration["subnetFile"] = json!(file);
        let answer = || output(&ask("ADD", "/run/netns/is-not-there", &configuration))["msg"].to_string();
        assert!(answer().contains("subnet.env"), "{}", answer());
        fs::write(&file, "FLANNEL_SUBNET=10.9.0.0/29\n").unwrap();
        assert!(answer().contains("is-not-there"), "{}", answer());
    }

    #[test]
    fn version_status_check_and_gc_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("addresses");
        let mut configuration = configuration(&store, &json!({}));
        let version = output(&ask("VERSION", "", &configuration));
        assert!(version["supportedVersions"].as_array().unwrap().contains(&json!("0.4.0")), "{version}");
        assert!(ask("STATUS", "", &configuration).is_success());
        assert_eq!(output(&ask("CHECK", "", &configuration))["code"], FAILED);
        assert_eq!(output(&ask("DANCE", "", &configuration))["code"], INVALID_ENVIRONMENT);

        let range = "10.9.0.0/29".parse().unwrap();
        let mut locked = Store::lock(&store).unwrap();
        let kept = locked.reserve(range, "kept", "eth0").unwrap();
        for _ in 0..4 {
            locked.reserve(range, "gone", "eth0").unwrap();
        }
        drop(locked);
        assert_eq!(output(&ask("STATUS", "", &configuration))["code"], NOT_AVAILABLE);
        configuration["cni.dev/valid-attachments"] = json!([{ "containerID": "kept", "ifname": "eth0" }]);
        assert!(ask("GC", "", &configuration).is_success());
        assert_eq!(Store::read(&store).unwrap().into_keys().collect::<Vec<_>>(), [kept]);
    }

    #[test]
    fn an_incomplete_configuration_is_refused() {
        let answer = ask("ADD", "", &json!({ "cniVersion": "0.4.0", "type": "keyed" }));
        assert_eq!((answer.is_success(), &output(&answer)["code"]), (false, &json!(FAILED)));
        let variable = |_: &str| String::new();
        let broken = super::answer(&variable, &b"{"[..]);
        assert_eq!(output(&broken)["code"], INVALID_CONFIGURATION);
    }
}
