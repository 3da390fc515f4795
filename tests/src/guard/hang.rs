//! A file whose opening hangs, as on a file server that is gone. The kernel asks a fanotify watcher for
//! permission, and the watcher never answers (fanotify(7)).

use std::{os::fd::AsFd as _, path::Path};

use anyhow::{Context as _, Result};
use nix::{
    fcntl::AT_FDCWD,
    poll::{self, PollFd, PollFlags, PollTimeout},
    sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags},
};

/// Opening the file hangs while this exists. When it is dropped, the kernel lets all waiting processes go on.
#[derive(Debug)]
pub struct Hang(Fanotify);

impl Hang {
    /// Makes the file at `path` hang. This process must not open it meanwhile.
    pub fn at(path: &Path) -> Result<Self> {
        let class = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC;
        let watcher = Fanotify::init(class, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC);
        let watcher =
            watcher.context("fanotify needs CAP_SYS_ADMIN and a kernel with fanotify permissions")?;
        watcher
            .mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_PERM, AT_FDCWD, Some(path))
            .with_context(|| format!("cannot make {} hang", path.display()))?;
        Ok(Self(watcher))
    }

    /// Whether a process hangs there now.
    pub fn holds_a_process(&self) -> Result<bool> {
        let mut requests = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll::poll(&mut requests, PollTimeout::ZERO)? > 0)
    }
}
