//! Reads files of the state directory, with a bound on their size.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// The longest file that is read, bytes. Files with many boots of many pods and many findings are far shorter.
const LONGEST: u64 = 256 << 20;

/// Reads a whole file. Only a plain file is opened: opening a fifo would wait until somebody writes to it.
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    if about.len() > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
    }
    let mut bytes = Vec::new();
    // The file may have grown since.
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path};

    use super::read_bounded;

    #[test]
    fn what_has_no_end_is_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let huge = dir.path().join("huge");
        File::create(&huge).and_then(|file| file.set_len(64 << 30)).expect("a sparse file");
        for (path, why) in [
            (Path::new("/dev/zero"), "no plain file"),
            (dir.path(), "no plain file"),
            (&huge, "longer than 268435456 bytes"),
        ] {
            let error = read_bounded(path).expect_err("it is none").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
