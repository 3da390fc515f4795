//! Where a release comes from: the name of its image, and who gives it out. A fork's release has names of its own.

use anyhow::{Result, ensure};

/// The image's name in the repository. No registry has it: the image is imported, never pulled.
const OURS: &str = "localhost/sandprobe";
/// Who answers for packages that somebody builds from this repository for himself.
const NOBODY: &str = "The sandprobe developers <sandprobe@localhost>";

#[derive(clap::Args, Clone)]
pub(crate) struct Origin {
    /// The image's name, without a tag: archives, chart and manifests have it
    #[arg(long, value_name = "REGISTRY/NAME", default_value = OURS, value_parser = repository)]
    pub(crate) image: String,
    /// The address of the repository: image, chart and packages name it
    #[arg(long, value_name = "URL")]
    pub(crate) home: Option<String>,
    /// Who answers for the packages
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = NOBODY)]
    pub(crate) maintainer: String,
}

impl Default for Origin {
    fn default() -> Self {
        Self { image: OURS.to_owned(), home: None, maintainer: NOBODY.to_owned() }
    }
}

/// As registries allow it: in small letters, without tag and digest.
fn repository(text: &str) -> Result<String, String> {
    let is_part = |part: &str| {
        let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        let is_known = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || "._-".contains(it);
        part.chars().all(is_known) && is_end(part.chars().next()) && is_end(part.chars().next_back())
    };
    let (host, path) = text.split_once('/').unwrap_or_default();
    let (host, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_host = is_part(host) && !port.is_empty() && port.chars().all(|it| it.is_ascii_digit());
    let is_name = is_host && path.split('/').all(is_part);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "give it as registry/name, in small letters and without a tag".to_owned())
}

impl Origin {
    /// The files of the chart or of the manifests with the name of this release's image.
    pub(super) fn named(&self, mut files: Vec<(String, Vec<u8>)>) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found = false;
        for (path, bytes) in &mut files {
            // Nothing but text is there; what were none would stay as it is.
            let Ok(text) = str::from_utf8(bytes) else { continue };
            found |= text.contains(OURS);
            let mut text = text.replace(OURS, &self.image);
            if let Some(home) = self.home.as_ref().filter(|_| path == "Chart.yaml") {
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
