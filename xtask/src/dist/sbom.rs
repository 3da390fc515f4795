//! Makes the software bill of materials: the crates of the program, as cargo resolves them for that program
//! and architecture.
//!
//! cargo-cyclonedx is not used. It writes a list for each crate, so the eBPF object's list would have to be
//! merged; it does not know musl and the standard library; and it takes minutes to build.
//!
//! The format is CycloneDX 1.5, JSON. Crates that only run during the build (macros, build scripts) are left
//! out.

use super::{Arch, Release, date};
use crate::workspace;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// The programs in the binary: the agent, and the eBPF object in it.
const ROOTS: [(&str, Option<&str>); 2] = [("probe-user", None), ("probe-ebpf", Some("bpfel-unknown-none"))];

/// Crates by name and version, with their licences and dependencies.
#[derive(Default)]
struct Crates {
    licences: BTreeMap<Id, String>,
    needs: BTreeMap<Id, BTreeSet<Id>>,
}

type Id = (String, String);

pub(super) fn of(arch: Arch, release: &Release) -> Result<Vec<u8>> {
    let mut crates = Crates::default();
    for (package, target) in ROOTS {
        let target = target.map_or_else(|| arch.target(), ToOwned::to_owned);
        let mut cargo = workspace::cargo();
        cargo.args(["tree", "--locked", "--package", package, "--target", &target, "--prefix", "depth"]);
        cargo.args(["--edges", "normal,no-proc-macro", "--no-dedupe", "--format", "|{p}|{l}"]);
        crates.read(&workspace::output(&mut cargo)?)?;
    }
    let path = workspace::root().join("Cargo.lock");
    let lock = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rust = workspace::output(Command::new("rustc").arg("--version"))?;
    let rust = rust.split_whitespace().nth(1).context("rustc tells no version")?;
    Ok(serde_json::to_vec_pretty(&document(&crates, &sums(&lock), rust, arch, release))?)
}

impl Crates {
    /// Reads lines of `cargo tree`: `2|name v1.0.0 (proc-macro)|MIT OR Apache-2.0`.
    fn read(&mut self, tree: &str) -> Result<()> {
        let mut way: Vec<Id> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let parsed = (|| {
                let mut fields = line.splitn(3, '|');
                let depth: usize = fields.next()?.parse().ok()?;
                let mut words = fields.next()?.split_whitespace();
                let name = words.next()?.to_owned();
                let version = words.next()?.trim_start_matches('v').to_owned();
                Some((depth, (name, version), fields.next().unwrap_or_default()))
            })();
            let (depth, id, licence) = parsed.with_context(|| format!("cargo tree says {line:?}"))?;
            // A slash is the old form of OR.
            self.licences.insert(id.clone(), licence.replace('/', " OR ").replace("  OR  ", " OR "));
            way.truncate(depth);
            if let Some(parent) = way.last() {
                self.needs.entry(parent.clone()).or_default().insert(id.clone());
            }
            way.push(id);
        }
        Ok(())
    }
}

/// Returns the SHA-256 of each crate, from Cargo.lock.
fn sums(lock: &str) -> BTreeMap<Id, String> {
    let packages = lock.split("[[package]]");
    packages
        .filter_map(|package| {
            let id = (field(package, "name")?, field(package, "version")?);
            Some((id, field(package, "checksum")?))
        })
        .collect()
}

/// Reads a line `name = "value"`.
fn field(package: &str, name: &str) -> Option<String> {
    let value = package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")))?;
    Some(value.trim_end_matches('"').to_owned())
}

/// Returns the reference of a crate: its package URL.
fn reference((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn document(
    crates: &Crates,
    sums: &BTreeMap<Id, String>,
    rust: &str,
    arch: Arch,
    release: &Release,
) -> Value {
    let mut components = Vec::new();
    for (id, licence) in &crates.licences {
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(id),
            "name": id.0,
            "version": id.1,
            "purl": reference(id),
            "licenses": [{ "expression": licence }],
        });
        if let Some(sum) = sums.get(id) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        components.push(component);
    }
    // The toolchain brings both and links them in.
    components.push(json!({
        "type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    components.push(json!({
        "type": "library", "bom-ref": "musl", "name": "musl",
        "licenses": [{ "expression": "MIT" }],
    }));
    let mut needs = Vec::new();
    for (id, depends_on) in &crates.needs {
        let depends_on: Vec<String> = depends_on.iter().map(reference).collect();
        needs.push(json!({ "ref": reference(id), "dependsOn": depends_on }));
    }
    let roots = ROOTS.map(|(name, _)| reference(&(name.to_owned(), release.version.to_owned())));
    let all: Vec<&str> = roots.iter().map(String::as_str).chain(["rust-std", "musl"]).collect();
    needs.push(json!({ "ref": "sandprobe", "dependsOn": all }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": date(release.made),
            "component": {
                "type": "application",
                "bom-ref": "sandprobe",
                "name": "sandprobe",
                "version": release.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "properties": [{ "name": "sandprobe:machine", "value": arch.name() }],
            },
        },
        "components": components,
        "dependencies": needs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::origin::Origin;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\n\
                        [[package]]\nname = \"probe-user\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";

    #[test]
    fn what_is_needed_is_told_with_licence_and_sum() {
        let mut crates = Crates::default();
        let tree = "0|probe-user v0.1.0 (/x)|MIT OR Apache-2.0\n1|b v2.0.0|MIT/Apache-2.0\n2|a v1.0.0|Zlib\n\
                    1|a v1.0.0|Zlib\n";
        crates.read(tree).unwrap();
        let release =
            Release { version: "0.1.0", made: 0, revision: String::new(), origin: Origin::default() };
        let told = document(&crates, &sums(LOCK), "1.95.0", Arch::X86_64, &release);
        let names: Vec<_> =
            told["components"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, ["a", "b", "probe-user", "rust-std", "musl"]);
        assert_eq!(told["components"][0]["hashes"][0]["content"], "00ff");
        assert_eq!(told["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(told["components"][2].get("hashes").is_none(), "it is ours: no registry has it");
        let of = |name: &str| {
            let all = told["dependencies"].as_array().unwrap();
            all.iter().find(|it| it["ref"] == name).unwrap()["dependsOn"].clone()
        };
        assert_eq!(of("pkg:cargo/probe-user@0.1.0"), json!(["pkg:cargo/a@1.0.0", "pkg:cargo/b@2.0.0"]));
        assert_eq!(of("pkg:cargo/b@2.0.0"), json!(["pkg:cargo/a@1.0.0"]));
    }

    #[test]
    fn a_tree_that_cannot_be_read_is_an_error() {
        assert!(Crates::default().read("not a tree\n").is_err());
    }
}
