//! Real network namespaces, with a type for each of three ways in which a namespace ends.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};

use super::unique_name;

const DIRECTORY: &str = "/run/netns";

/// A namespace that a bind mount at `/run/netns/NAME` holds, as `ip netns add` and container runtimes do. It
/// ends with the unmount.
#[derive(Debug)]
pub struct MountedNetns {
    path: PathBuf,
    inode: u32,
    mounted: bool,
}

impl MountedNetns {
    pub fn create() -> Result<Self> {
        let path = Path::new(DIRECTORY).join(unique_name("test"));
        fs::create_dir_all(DIRECTORY).with_context(|| format!("make {DIRECTORY}"))?;
        File::create_new(&path).with_context(|| format!("make {}", path.display()))?;
        // The guard exists from here on, so that it removes the file if a step below fails.
        let mut guard = Self { path, inode: 0, mounted: false };
        let target = guard.path.clone();
        // A thread has its own network namespace, and the mount holds the namespace when the thread ends.
        std::thread::spawn(move || -> Result<()> {
            unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace; root is needed")?;
            mount(Some("/proc/thread-self/ns/net"), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .with_context(|| format!("mount a network namespace at {}", target.display()))
        })
        .join()
        .map_err(|_panic| anyhow!("the thread that makes a network namespace panicked"))??;
        guard.mounted = true;
        guard.inode = inode_of(&fs::metadata(&guard.path)?)?;
        Ok(guard)
    }

    pub fn inode(&self) -> u32 {
        self.inode
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the mount by an open file, which alone holds the namespace then.
    pub fn into_open(mut self) -> Result<OpenNetns> {
        let file = File::open(&self.path)?;
        self.release()?;
        Ok(OpenNetns { _file: file, inode: self.inode })
    }

    pub fn end(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        if self.mounted {
            umount2(&self.path, MntFlags::MNT_DETACH)
                .with_context(|| format!("unmount {}", self.path.display()))?;
            self.mounted = false;
        }
        if self.path.exists() {
            fs::remove_file(&self.path).with_context(|| format!("remove {}", self.path.display()))?;
        }
        Ok(())
    }
}

impl Drop for MountedNetns {
    fn drop(&mut self) {
        // An error in drop cannot be reported. `end` reports errors.
        let _ = self.release();
    }
}

/// A namespace that only this open file holds. It ends when the file is closed.
#[derive(Debug)]
pub struct OpenNetns {
    _file: File,
    inode: u32,
}

impl OpenNetns {
    pub fn create() -> Result<Self> {
        MountedNetns::create()?.into_open()
    }

    pub fn inode(&self) -> u32 {
        self.inode
    }
}

/// A namespace of one process (`unshare --net`). It ends with the process.
#[derive(Debug)]
pub struct ProcessNetns {
    child: Child,
    inode: u32,
}

impl ProcessNetns {
    pub fn create() -> Result<Self> {
        // The process ends at the end of its input, so it ends with this test even if the test is killed.
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; read -r line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start unshare; is util-linux installed?")?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or_else(|| anyhow!("unshare has no output"))?;
        BufReader::new(output).read_line(&mut line)?;
        if line.is_empty() {
            let status = child.wait()?;
            bail!("unshare --net ended with {status}; root is needed");
        }
        let metadata = fs::metadata(format!("/proc/{}/ns/net", child.id()))?;
        Ok(Self { inode: inode_of(&metadata)?, child })
    }

    pub fn inode(&self) -> u32 {
        self.inode
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn end(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.wait().context("wait for unshare").map(drop)
    }
}

impl Drop for ProcessNetns {
    fn drop(&mut self) {
        // `wait` returns the earlier status if the process was waited for before.
        let _ = self.release();
    }
}

/// nsfs inode numbers have 32 bits in the kernel (`ns.inum` is an unsigned int).
fn inode_of(metadata: &fs::Metadata) -> Result<u32> {
    u32::try_from(metadata.ino()).context("a network namespace's inode does not fit 32 bits")
}
