//! Real network namespaces, one type for each of the three ways in which a namespace ends.

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

/// A namespace held by a bind mount at `/run/netns/NAME`, as `ip netns add` and container runtimes do.
/// It ends with the unmounting.
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
        // The guard exists from here on, so that a failure below removes the file.
        let mut guard = Self { path, inode: 0, mounted: false };
        let target = guard.path.clone();
        // A thread has a network namespace of its own, and leaves it to the mount when it ends.
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

    /// Swaps the mount for an open file, the last thing that holds the namespace.
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
        // Nobody can be told here; `end` is for those who want to know.
        let _ = self.release();
    }
}

/// A namespace held by nothing but this open file: it ends with the closing.
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

/// A namespace of one process (`unshare --net`), which ends with it.
#[derive(Debug)]
pub struct ProcessNetns {
    child: Child,
    inode: u32,
}

impl ProcessNetns {
    pub fn create() -> Result<Self> {
        // `read` ends at the end of input: the process lives as long as our end of the pipe is open, even if
        // this test dies without a word.
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
        // `wait` gives the remembered status if the process has been waited for before.
        let _ = self.release();
    }
}

/// nsfs numbers are 32 bits wide in the kernel (`ns.inum` is an unsigned int).
fn inode_of(metadata: &fs::Metadata) -> Result<u32> {
    u32::try_from(metadata.ino()).context("a network namespace's inode does not fit 32 bits")
}
