//! A file at which whoever opens it hangs, as at one of a file server that is gone: the kernel asks a watcher that never
//! answers whether it may be opened (fanotify(7)).

use std::{os::fd::AsFd as _, path::Path};

use anyhow::{Context as _, Result};
use nix::{
    fcntl::AT_FDCWD,
    poll::{self, PollFd, PollFlags, PollTimeout},
    sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags},
};

/// Where that file's opening hangs for as long as this is there; the kernel lets all go on when it is closed.
#[derive(Debug)]
pub struct Hang(Fanotify);

impl Hang {
    /// Of the file at `path` alone, which this process must not open meanwhile.
    pub fn at(path: &Path) -> Result<Self> {
        let class = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC;
        let watcher = Fanotify::init(class, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC);
        let watcher = watcher.context("fanotify needs CAP_SYS_ADMIN, and a kernel that has it")?;
        watcher
            .mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_PERM, AT_FDCWD, Some(path))
            .with_context(|| format!("cannot have {} hang", path.display()))?;
        Ok(Self(watcher))
    }

    /// Whether somebody hangs there now.
    pub fn holds_somebody(&self) -> Result<bool> {
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll::poll(&mut asked, PollTimeout::ZERO)? > 0)
    }
}
