//! The part of a cluster's API server that serves Events and conditions of nodes. It allows what the
//! deployment's RBAC rules allow, and accepts objects that fit Kubernetes' own types.

mod connection;
mod object;

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize as _;
use serde_json::{Value, json};

use self::{
    connection::Reply,
    object::{Answer, Kind, refused},
};

/// The rights of the deployed agent.
const RULES: &str = include_str!("../../deploy/manifests/kubernetes/rbac.yaml");
const TOKEN: &str = "the-token-of-the-service-account";

/// How the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// It accepts requests and never answers.
    Hangs,
    /// It refuses all requests.
    Forbids,
    /// A load balancer in front of it does not find it.
    Missing,
    /// Its answers have no end.
    Floods,
}

#[derive(Debug)]
pub struct ApiServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    node: String,
    rules: Vec<Rule>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    /// The Events by namespace and name.
    events: BTreeMap<(String, String), Value>,
    /// The node's object.
    node: Value,
    /// Method, path and status of each request that was answered.
    answered: Vec<String>,
}

/// A rule of a role.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

impl ApiServer {
    /// Starts it for a cluster with this node.
    pub fn start(node: &str) -> Result<Self> {
        let documents = serde_yaml_ng::Deserializer::from_str(RULES);
        let objects: Vec<Value> = documents.map(Value::deserialize).collect::<Result<_, _>>()?;
        let role = objects.iter().find(|it| it["kind"] == "ClusterRole").context("no role")?;
        let rules: Vec<Rule> = serde_json::from_value(role["rules"].clone())?;
        ensure!(!rules.is_empty(), "the role allows nothing");
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
        let state = State {
            mood: Mood::Well,
            events: BTreeMap::new(),
            node: json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": node },
                "status": { "conditions": [ready] },
            }),
            answered: Vec::new(),
        };
        let shared = Arc::new(Shared { node: node.to_owned(), rules, state: Mutex::new(state) });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let tls = connection::tls()?;
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tls, shared) = (Arc::clone(&tls), Arc::clone(&serving));
                // A client that disconnects is no error of the server.
                thread::spawn(move || connection::serve(stream, tls, &shared).ok());
            }
        });
        Ok(Self { address, shared })
    }

    /// Writes a kubeconfig for this server into this directory.
    pub fn kubeconfig(&self, dir: &Path) -> Result<PathBuf> {
        let (authority, token, file) = (dir.join("ca.crt"), dir.join("token"), dir.join("kubeconfig"));
        fs::write(&authority, connection::AUTHORITY)?;
        // As `kubectl create token` prints it.
        fs::write(&token, format!("{TOKEN}\n"))?;
        let cluster = json!({
            "server": format!("https://{}", self.address),
            "certificate-authority": authority,
        });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "test", "user": { "tokenFile": token } }],
        });
        fs::write(&file, config.to_string())?;
        Ok(file)
    }

    pub fn be(&self, mood: Mood) {
        self.shared.state().mood = mood;
    }

    /// Returns the Events, sorted by namespace and name.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        self.shared.state().events.values().cloned().collect()
    }

    /// Returns the node's condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<Value> {
        let state = self.shared.state();
        let conditions = state.node["status"]["conditions"].as_array()?;
        conditions.iter().find(|it| it["type"] == kind).cloned()
    }

    /// Returns each request so far, with its status: `PATCH /api/v1/nodes/n/status 200`.
    #[must_use]
    pub fn answered(&self) -> Vec<String> {
        self.shared.state().answered.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &connection::Request) -> Reply {
        let mut state = self.state();
        let answer = match state.mood {
            Mood::Hangs => return Reply::Never,
            Mood::Missing => return Reply::Missing,
            Mood::Floods => return Reply::Endless,
            mood => self.ask(&mut state, mood, request).unwrap_or_else(|answer| answer),
        };
        state.answered.push(format!("{} {} {}", request.method, request.path, answer.status));
        Reply::Answer(answer)
    }

    fn ask(&self, state: &mut State, mood: Mood, request: &connection::Request) -> Result<Answer, Answer> {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return Err(refused(401, "Unauthorized", "Unauthorized"));
        }
        let kind = Kind::of(&request.path).ok_or_else(|| refused(404, "NotFound", "no such path"))?;
        let verb = match request.method.as_str() {
            "POST" => "create",
            "PATCH" => "patch",
            "GET" => "get",
            other => other,
        };
        let allows = |rule: &Rule| {
            let has = |list: &[String], word: &str| list.iter().any(|it| it == word);
            has(&rule.api_groups, "") && has(&rule.resources, kind.resource()) && has(&rule.verbs, verb)
        };
        if mood == Mood::Forbids || !self.rules.iter().any(allows) {
            let why = format!("the service account cannot {verb} resource {:?}", kind.resource());
            return Err(refused(403, "Forbidden", &why));
        }
        match (kind, verb) {
            (Kind::Events { namespace }, "create") => object::create_event(state, &namespace, request),
            (Kind::Event { namespace, name }, "patch") => {
                object::patch_event(state, &namespace, &name, request)
            }
            (Kind::NodeStatus { name }, "patch") if name == self.node => object::patch_node(state, request),
            (Kind::NodeStatus { name }, "patch") => {
                Err(refused(404, "NotFound", &format!("nodes {name:?} not found")))
            }
            _ => Err(refused(405, "MethodNotAllowed", "not allowed")),
        }
    }
}
