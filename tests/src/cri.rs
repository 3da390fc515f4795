//! A CRI v1 client with the kubelet's calls to containerd or CRI-O, one method for each call.
//!
//! It blocks, because a test is a sequence of steps. A test that needs several pods at once uses several
//! threads with their own connections. The async code of gRPC stays in this file.

pub mod message;
pub mod proxy;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::{net::UnixStream, runtime::Runtime, time::timeout};
use tonic::{
    Code, Request,
    client::Grpc,
    transport::{Channel, Endpoint, Uri},
};
use tonic_prost::ProstCodec;

use message::{
    Empty, Id, RuntimeStatusRequest, RuntimeStatusResponse, StatusRequest, Version,
    container::{
        Container, ContainerConfig, ContainerList, ContainerStatus, ContainerStatusResponse,
        CreateContainerRequest, ExecSyncRequest, ExecSyncResponse, ImageRequest, ImageSpec,
        StopContainerRequest,
    },
    event::ContainerEvent,
    sandbox::{PodSandbox, PodSandboxConfig, PodSandboxList, PodSandboxStatusResponse, RunPodSandboxRequest},
};

/// The kubelet's default `runtimeRequestTimeout`. Under software emulation a runtime needs seconds for a
/// call.
const CALL_DEADLINE: Duration = Duration::from_secs(120);

/// A connection to one runtime.
pub struct Cri {
    runtime: Runtime,
    grpc: Grpc<Channel>,
    socket: PathBuf,
}

impl Cri {
    /// Connects to the runtime's unix socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is never resolved, because the connector above always connects to the socket.
        let endpoint = Endpoint::from_static("http://cri");
        let channel = runtime
            .block_on(endpoint.connect_with_connector(connector))
            .with_context(|| format!("connect to the runtime at {}", socket.display()))?;
        Ok(Self { runtime, grpc: Grpc::new(channel), socket: socket.to_owned() })
    }

    /// Returns a second connection to the same runtime, for another thread.
    pub fn reconnect(&self) -> Result<Self> {
        Self::connect(&self.socket)
    }

    pub fn version(&mut self) -> Result<Version> {
        self.call("Version", Empty {})
    }

    /// Returns the networks that containerd uses, each as the text of its configuration.
    pub fn network_configurations(&mut self) -> Result<Vec<String>> {
        let answer: RuntimeStatusResponse = self.call("Status", RuntimeStatusRequest { verbose: true })?;
        let text = answer.info.get("cniconfig").map_or("null", String::as_str);
        let json: serde_json::Value = serde_json::from_str(text).context("the networks are not JSON")?;
        let networks = json["Networks"].as_array().into_iter().flatten();
        let sources = networks.filter_map(|network| network["Config"]["Source"].as_str());
        Ok(sources.map(str::to_owned).collect())
    }

    /// Starts a pod's sandbox and returns its id.
    pub fn run_pod_sandbox(&mut self, config: PodSandboxConfig) -> Result<String> {
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
        let Id { id } = self.call("RunPodSandbox", request)?;
        Ok(id)
    }

    pub fn stop_pod_sandbox(&mut self, id: &str) -> Result<()> {
        self.call("StopPodSandbox", Id { id: id.to_owned() }).map(|Empty {}| ())
    }

    pub fn remove_pod_sandbox(&mut self, id: &str) -> Result<()> {
        self.call("RemovePodSandbox", Id { id: id.to_owned() }).map(|Empty {}| ())
    }

    pub fn list_pod_sandbox(&mut self) -> Result<Vec<PodSandbox>> {
        let list: PodSandboxList = self.call("ListPodSandbox", Empty {})?;
        Ok(list.items)
    }

    pub fn pod_sandbox_status(&mut self, id: &str) -> Result<PodSandboxStatusResponse> {
        self.call("PodSandboxStatus", StatusRequest { id: id.to_owned(), verbose: true })
    }

    /// Pulls an image.
    pub fn pull_image(&mut self, image: &str) -> Result<()> {
        let request = ImageRequest { image: Some(ImageSpec { image: image.to_owned() }) };
        // The answer is the image's id.
        self.ask("ImageService", "PullImage", request).map(|Id { .. }| ())
    }

    pub fn remove_image(&mut self, image: &str) -> Result<()> {
        let request = ImageRequest { image: Some(ImageSpec { image: image.to_owned() }) };
        self.ask("ImageService", "RemoveImage", request).map(|Empty {}| ())
    }

    /// Creates a container in a sandbox and returns its id. The runtime needs the sandbox's configuration
    /// again.
    pub fn create_container(
        &mut self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let Id { id } = self.call("CreateContainer", request)?;
        Ok(id)
    }

    pub fn start_container(&mut self, id: &str) -> Result<()> {
        self.call("StartContainer", Id { id: id.to_owned() }).map(|Empty {}| ())
    }

    /// Runs a command in a container and waits for its end, like `kubectl exec`.
    pub fn exec(&mut self, id: &str, command: &[&str]) -> Result<ExecSyncResponse> {
        let timeout = i64::try_from(CALL_DEADLINE.as_secs()).context("deadline too long")?;
        let command = command.iter().map(ToString::to_string).collect();
        self.call("ExecSync", ExecSyncRequest { container_id: id.to_owned(), command, timeout })
    }

    /// Sends SIGTERM, and SIGKILL after `grace`.
    pub fn stop_container(&mut self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).context("grace period too long")?;
        let request = StopContainerRequest { container_id: id.to_owned(), timeout };
        self.call("StopContainer", request).map(|Empty {}| ())
    }

    pub fn remove_container(&mut self, id: &str) -> Result<()> {
        self.call("RemoveContainer", Id { id: id.to_owned() }).map(|Empty {}| ())
    }

    pub fn list_containers(&mut self) -> Result<Vec<Container>> {
        let list: ContainerList = self.call("ListContainers", Empty {})?;
        Ok(list.containers)
    }

    pub fn container_status(&mut self, id: &str) -> Result<ContainerStatus> {
        let answer: ContainerStatusResponse =
            self.call("ContainerStatus", StatusRequest { id: id.to_owned(), verbose: false })?;
        answer.status.ok_or_else(|| anyhow!("the ContainerStatus of {id} is empty"))
    }

    /// Returns the process id of a container's program. Only the verbose status has it.
    pub fn container_pid(&mut self, id: &str) -> Result<i32> {
        let answer: ContainerStatusResponse =
            self.call("ContainerStatus", StatusRequest { id: id.to_owned(), verbose: true })?;
        info_pid(&answer.info).with_context(|| format!("process id of container {id}"))
    }

    /// Calls `tell` for each event of a container until `tell` fails or the runtime ends. Returns false if
    /// the runtime has no such events.
    pub fn container_events(&mut self, mut tell: impl FnMut(ContainerEvent) -> Result<()>) -> Result<bool> {
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let grpc = &mut self.grpc;
        self.runtime.block_on(async {
            grpc.ready().await?;
            let codec = ProstCodec::<Empty, ContainerEvent>::default();
            let mut events = match grpc.server_streaming(Request::new(Empty {}), path, codec).await {
                Ok(answer) => answer.into_inner(),
                Err(status) if status.code() == Code::Unimplemented => return Ok(false),
                Err(status) => return Err(status.into()),
            };
            while let Some(event) = events.message().await? {
                tell(event)?;
            }
            Ok(true)
        })
    }

    fn call<Q, R>(&mut self, method: &'static str, request: Q) -> Result<R>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        self.ask("RuntimeService", method, request)
    }

    fn ask<Q, R>(&mut self, service: &'static str, method: &'static str, request: Q) -> Result<R>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/runtime.v1.{service}/{method}"))?;
        let grpc = &mut self.grpc;
        let exchange = async move {
            grpc.ready().await?;
            let response = grpc.unary(Request::new(request), path, ProstCodec::<Q, R>::default()).await?;
            anyhow::Ok(response.into_inner())
        };
        let answer = self.runtime.block_on(async { timeout(CALL_DEADLINE, exchange).await });
        answer
            .with_context(|| format!("{method} was not answered within {} s", CALL_DEADLINE.as_secs()))?
            .with_context(|| format!("{method} failed"))
    }
}

/// Returns the `pid` in containerd's JSON under the key `info` of a verbose status.
pub(crate) fn info_pid(info: &std::collections::HashMap<String, String>) -> Result<i32> {
    let text = info.get("info").ok_or_else(|| anyhow!("the verbose status has no info"))?;
    let json: serde_json::Value = serde_json::from_str(text).context("the verbose status is not JSON")?;
    let pid = json["pid"].as_i64().ok_or_else(|| anyhow!("the verbose status has no pid"))?;
    i32::try_from(pid).context("the pid in the verbose status is too large")
}
