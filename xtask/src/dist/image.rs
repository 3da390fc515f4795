//! Makes container images without other tools: an OCI image layout in a tar file, which contains only the
//! program.
//!
//! The formats are those of the OCI image specification 1.1 (image-layout.md, image-index.md, manifest.md,
//! config.md).

use super::archive::{Entry, gzip, tar};
use super::{Arch, Release, date, digest};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image for one architecture.
pub(super) struct Image {
    arch: Arch,
    manifest: Blob,
    others: [Blob; 2],
}

struct Blob {
    kind: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, bytes: Vec<u8>) -> Self {
        Self { kind, digest: format!("sha256:{}", digest(&bytes)), bytes }
    }

    fn json(kind: &'static str, value: &Value) -> Self {
        Self::new(kind, value.to_string().into_bytes())
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.kind, "digest": self.digest, "size": self.bytes.len() })
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

impl Image {
    pub(super) fn new(arch: Arch, program: &[u8], release: &Release) -> Result<Self> {
        let files = [Entry { path: "sandprobe".to_owned(), mode: 0o755, bytes: program }];
        let files = tar(&files, release.made)?;
        let layer = Blob::new(LAYER, gzip(&files)?);
        let made = date(release.made);
        let config = json!({
            "created": made,
            "architecture": arch.short(),
            "os": "linux",
            "config": {
                "User": "0:0",
                "Entrypoint": ["/sandprobe"],
                "Cmd": ["run"],
                "WorkingDir": "/",
                "Env": ["PATH=/"],
                "Labels": labels(release),
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&files))] },
            "history": [{ "created": made, "created_by": "cargo xtask dist" }],
        });
        let config = Blob::json(CONFIG, &config);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
            "annotations": labels(release),
        });
        Ok(Self { arch, manifest: Blob::json(MANIFEST, &manifest), others: [config, layer] })
    }

    fn descriptor(&self) -> Value {
        let mut descriptor = self.manifest.descriptor();
        descriptor["platform"] = json!({ "architecture": self.arch.short(), "os": "linux" });
        descriptor
    }
}

fn labels(release: &Release) -> Value {
    let mut labels = json!({
        "org.opencontainers.image.title": "sandprobe",
        "org.opencontainers.image.description": "kernel timestamps for container and pod sandbox lifecycle",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": date(release.made),
    });
    if !release.revision.is_empty() {
        labels["org.opencontainers.image.revision"] = release.revision.clone().into();
    }
    if let Some(home) = &release.origin.home {
        labels["org.opencontainers.image.source"] = home.clone().into();
    }
    labels
}

/// Packs an image, or several for different architectures under one name.
pub(super) fn archive(images: &[&Image], release: &Release) -> Result<Vec<u8>> {
    let platforms = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": images.iter().map(|image| image.descriptor()).collect::<Vec<_>>(),
    });
    let platforms = Blob::json(INDEX, &platforms);
    let mut top = match images {
        [image] => image.descriptor(),
        _ => platforms.descriptor(),
    };
    let name = format!("{}:{}", release.origin.image, release.version);
    // containerd reads its own annotation; podman and docker read that of the specification.
    top["annotations"] =
        json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [top] }).to_string();

    let blobs = images.iter().flat_map(|image| image.others.iter().chain([&image.manifest]));
    let platforms = (images.len() > 1).then_some(&platforms);
    let blobs: BTreeMap<String, &[u8]> =
        blobs.chain(platforms).map(|blob| (blob.path(), blob.bytes.as_slice())).collect();
    let mut entries = vec![
        Entry { path: "oci-layout".to_owned(), mode: 0o644, bytes: br#"{"imageLayoutVersion":"1.0.0"}"# },
        Entry { path: "index.json".to_owned(), mode: 0o644, bytes: index.as_bytes() },
    ];
    entries.extend(blobs.into_iter().map(|(path, bytes)| Entry { path, mode: 0o644, bytes }));
    Ok(tar(&entries, release.made)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::origin::Origin;
    use std::io::Read as _;

    fn release() -> Release {
        let home = Some("https://git.example/x".to_owned());
        let origin = Origin { image: "r.example/sandprobe".to_owned(), home, ..Origin::default() };
        Release { version: "1.2.3", made: 7, revision: "abc".to_owned(), origin }
    }

    fn unpacked(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().to_string_lossy().into_owned(), bytes);
        }
        files
    }

    fn json(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    /// Checks digest and size of a descriptor, and returns its bytes.
    fn follow<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let sum = descriptor["digest"].as_str().unwrap();
        let bytes = &files[&format!("blobs/{}", sum.replace(':', "/"))];
        assert_eq!(format!("sha256:{}", digest(bytes)), sum);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn check_image(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value, program: &[u8]) {
        let manifest = json(follow(files, descriptor));
        let config = json(follow(files, &manifest["config"]));
        assert_eq!(config["architecture"], descriptor["platform"]["architecture"]);
        assert_eq!(config["config"]["User"], "0:0");
        let mut layer = Vec::new();
        let packed = follow(files, &manifest["layers"][0]);
        flate2::read::GzDecoder::new(packed).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&layer)));
        let entrypoint = config["config"]["Entrypoint"][0].as_str().unwrap().trim_start_matches('/');
        assert_eq!(unpacked(&layer)[entrypoint], program);
    }

    #[test]
    fn one_image_holds_together() {
        let image = Image::new(Arch::Aarch64, b"program", &release()).unwrap();
        let files = unpacked(&archive(&[&image], &release()).unwrap());
        let top = &json(&files["index.json"])["manifests"][0];
        assert_eq!(top["annotations"]["io.containerd.image.name"], "r.example/sandprobe:1.2.3");
        let manifest = json(follow(&files, top));
        assert_eq!(manifest["annotations"]["org.opencontainers.image.source"], "https://git.example/x");
        check_image(&files, top, b"program");
    }

    #[test]
    fn several_kinds_of_machine_have_one_name() {
        let [x86, arm] = [(Arch::X86_64, &b"x"[..]), (Arch::Aarch64, b"a")]
            .map(|(arch, program)| Image::new(arch, program, &release()).unwrap());
        let files = unpacked(&archive(&[&x86, &arm], &release()).unwrap());
        let top = &json(&files["index.json"])["manifests"][0];
        assert_eq!(top["mediaType"], INDEX);
        let platforms = json(follow(&files, top));
        check_image(&files, &platforms["manifests"][0], b"x");
        check_image(&files, &platforms["manifests"][1], b"a");
    }
}
