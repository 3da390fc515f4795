//! The things that a cluster gives the pod besides its spec: the image, and the files of its Secret.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result};

use crate::{image, program};

/// The Secret's files as docs/install.md makes them. The certificate is valid for a hundred years and used
/// only here.
const CERTIFICATE: &str = include_str!("../../data/deployed/tls.crt");
const KEY: &str = include_str!("../../data/deployed/tls.key");
pub const TOKEN: &str = "2f1b7f0e5c6d4a3b8e9f00112233445566778899";
/// The image archive of the build. `cargo xtask test` puts it beside the programs.
const IMAGE: &str = "sandprobe-image.tar";

/// Imports the image into the containerd at this socket.
pub fn import(socket: &Path) -> Result<()> {
    image::import(socket, &program::path("sandprobe")?.with_file_name(IMAGE))
}

/// Writes the Secret's files into a folder.
pub fn secret(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, text) in
        [("tls.crt", CERTIFICATE), ("ca.crt", CERTIFICATE), ("tls.key", KEY), ("token", TOKEN)]
    {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400))?;
    }
    Ok(())
}
