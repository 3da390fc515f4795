//! Where a release comes from: the name of its image, and its publisher. A fork's release has its own names.

use anyhow::{Result, ensure};

/// The image's name in the repository. No registry has it: the image is imported, never pulled.
const OURS: &str = "localhost/sandprobe";
/// The maintainer of packages that users build for themselves.
const NOBODY: &str = "The sandprobe developers <sandprobe@localhost>";

#[derive(clap::Args, Clone)]
pub(crate) struct Origin {
    /// The image's name without a tag, for archives, chart and manifests
    #[arg(long, value_name = "REGISTRY/NAME", default_value = OURS, value_parser = repository)]
    pub(crate) image: String,
    /// The address of the repository, for image, chart and packages
    #[arg(long, value_name = "URL")]
    pub(crate) home: Option<String>,
    /// The maintainer of the packages
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = NOBODY)]
    pub(crate) maintainer: String,
}

impl Default for Origin {
    fn default() -> Self {
        Self { image: OURS.to_owned(), home: None, maintainer: NOBODY.to_owned() }
    }
}

/// Checks a name by the rules of registries: in small letters, without tag and digest.
fn repository(text: &str) -> Result<String, String> {
    let (host, path) = text.split_once('/').unwrap_or_default();
    let (host, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_host = is_part(host) && !port.is_empty() && port.chars().all(|it| it.is_ascii_digit());
    let is_name = is_host && path.split('/').all(is_part);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("give it as registry/name, in small letters and without a tag".to_owned())
    }
}

/// Whether this is a part of a name: letters and digits at both ends, between them also `.`, `_` and `-`.
fn is_part(part: &str) -> bool {
    let is_letter = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    part.starts_with(is_letter)
        && part.ends_with(is_letter)
        && part.chars().all(|it| is_letter(it) || "._-".contains(it))
}

impl Origin {
    /// Puts the name of this release's image into the files of the chart or of the manifests.
    pub(super) fn named(&self, mut files: Vec<(String, Vec<u8>)>) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found = false;
        for (path, bytes) in &mut files {
            // All files are UTF-8 text today; another file would stay as it is.
            let Ok(text) = str::from_utf8(bytes) else { continue };
            found |= text.contains(OURS);
            let mut text = text.replace(OURS, &self.image);
            if let Some(home) = &self.home
                && path == "Chart.yaml"
            {
                text += &format!("home: {home}\nsources: [{home}]\n");
            }
            *bytes = text.into_bytes();
        }
        ensure!(found, "no file has the image {OURS}, in whose place {} belongs", self.image);
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, repository};

    #[test]
    fn the_files_get_the_name_of_the_image_and_the_chart_its_home() {
        let files = |text: &str| {
            [("Chart.yaml", "name: x\n"), ("values.yaml", text)]
                .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
                .to_vec()
        };
        let image = "ghcr.io/someone/sandprobe".to_owned();
        let home = Some("https://git.example/x".to_owned());
        let origin = Origin { image, home, ..Origin::default() };
        let named = origin.named(files("repository: localhost/sandprobe\n")).unwrap();
        let text = |at: usize| str::from_utf8(&named[at].1).unwrap();
        assert_eq!(text(0), "name: x\nhome: https://git.example/x\nsources: [https://git.example/x]\n");
        assert_eq!(text(1), "repository: ghcr.io/someone/sandprobe\n");
        let error = origin.named(files("repository: elsewhere\n")).unwrap_err().to_string();
        assert!(error.contains("localhost/sandprobe"), "{error}");
        let own = files("repository: localhost/sandprobe\n");
        assert_eq!(Origin::default().named(own.clone()).unwrap(), own);
    }

    #[test]
    fn a_repository_has_a_registry_and_no_tag() {
        for right in ["localhost/sandprobe", "ghcr.io/some-one/sandprobe", "r.example:5000/a/b_c"] {
            assert_eq!(repository(right).as_deref(), Ok(right));
        }
        for wrong in [
            "sandprobe",
            "ghcr.io/Someone/x",
            "ghcr.io/x:1",
            "ghcr.io/",
            "/x",
            "a:/x",
            "a/x@sha256:0",
            "a/-x",
        ] {
            assert!(repository(wrong).is_err(), "{wrong}");
        }
    }
}
