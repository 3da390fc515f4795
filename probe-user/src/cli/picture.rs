//! The flags of pictures, and the files they are written to.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use clap::Args;

use super::{input::identity, output};
use crate::sink::render::{chart::Chart, page, perfetto};

#[derive(Debug, Args)]
pub(super) struct Pictures {
    /// Draw a page for a browser into this file instead, which is replaced; "-" is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    html: Option<PathBuf>,

    /// Write a trace (Chrome's JSON) for ui.perfetto.dev into this file instead; "-" is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    perfetto: Option<PathBuf>,
}

impl Pictures {
    pub(super) fn are_wanted(&self) -> bool {
        self.html.is_some() || self.perfetto.is_some()
    }

    /// Refuses a file that is read, and the same file for both pictures: a picture would take the place of
    /// what is there.
    pub(super) fn refuse_over<'a>(&self, read: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
        if let (Some(html), Some(perfetto)) = (&self.html, &self.perfetto)
            && place(html) == place(perfetto)
        {
            return Err(anyhow!("--html and --perfetto cannot both go to the same file"));
        }
        let read: Vec<_> = read.into_iter().filter_map(identity).collect();
        for (flag, file) in [("--html", &self.html), ("--perfetto", &self.perfetto)] {
            let Some(file) = file.as_deref().filter(|file| *file != Path::new("-")) else { continue };
            // Anything else, such as a pipe, is not replaced.
            if file.is_file() && identity(file).is_some_and(|it| read.contains(&it)) {
                return Err(anyhow!(
                    "{flag} {} would replace the recording that is read: give another file",
                    file.display()
                ));
            }
        }
        Ok(())
    }

    pub(super) fn draw(&self, chart: &Chart) -> anyhow::Result<()> {
        if let Some(file) = &self.html {
            put(file, page::page(chart).into_bytes())?;
        }
        if let Some(file) = &self.perfetto {
            put(file, perfetto::write(chart)?)?;
        }
        Ok(())
    }
}

/// Returns where bytes go that are written to a file of this name, which may be a link or not exist yet.
fn place(file: &Path) -> PathBuf {
    let file = if file == Path::new("-") { Path::new("/dev/stdout") } else { file };
    if let Ok(existing) = fs::canonicalize(file) {
        return existing;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), file.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    }
}

fn put(file: &Path, mut bytes: Vec<u8>) -> anyhow::Result<()> {
    if file == Path::new("-") {
        output::write(&mut bytes)?;
        return Ok(());
    }
    output::replace(file, &bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::Pictures;

    #[test]
    fn nothing_that_is_wanted_is_replaced_by_whatever_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let [recording, hard, soft, other, absent] =
            ["recording", "hard", "soft", "other", "absent"].map(|name| dir.path().join(name));
        fs::write(&recording, "recording").expect("a file");
        fs::write(&other, "page").expect("a file");
        fs::hard_link(&recording, &hard).expect("a link");
        symlink("recording", &soft).expect("a link");
        let refused = |html: Option<&Path>, perfetto: Option<&Path>| {
            let pictures =
                Pictures { html: html.map(Path::to_owned), perfetto: perfetto.map(Path::to_owned) };
            let read = [&*other.with_file_name("absent"), &*recording];
            pictures.refuse_over(read).err().map(|why| why.to_string())
        };
        for name in [&recording, &hard, &soft] {
            let said = |flag: &str| {
                let name = name.display();
                Some(format!("{flag} {name} would replace the recording that is read: give another file"))
            };
            assert_eq!(refused(Some(name), None), said("--html"));
            assert_eq!(refused(Some(&other), Some(name)), said("--perfetto"));
        }
        let both = "--html and --perfetto cannot both go to the same file";
        let other_link = dir.path().join("other_link");
        symlink("other", &other_link).expect("a link");
        let roundabout = |name: &str| dir.path().join(".").join(name);
        for (html, perfetto) in [
            (&*absent, &*roundabout("absent")),
            (&*other, &*other_link),
            (Path::new("absent"), Path::new("./absent")),
            (Path::new("-"), Path::new("-")),
            (Path::new("-"), Path::new("/dev/stdout")),
        ] {
            assert_eq!(refused(Some(html), Some(perfetto)).as_deref(), Some(both), "{}", html.display());
        }
        assert_eq!(refused(Some(&other), Some(&absent)), None);
        for fine in [&*other, &*absent, Path::new("-"), Path::new("/dev/null")] {
            assert_eq!(refused(Some(fine), None), None, "{}", fine.display());
        }
    }
}
