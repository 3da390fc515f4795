//! The RPM, by the library `rpm`.

use crate::content::{self, Content, Family, Parts, Role};
use crate::{Arch, DESCRIPTION, LICENSE, Origin, REVISION, SUMMARY, VERSION, upstream};
use anyhow::Result;
use rpm::{BuildConfig, CompressionType, FileOptions, PackageBuilder};

const POST: &str = include_str!("../../../deploy/package/rpm/post");
const PREUN: &str = include_str!("../../../deploy/package/rpm/preun");
const POSTUN: &str = include_str!("../../../deploy/package/rpm/postun");

/// Runs the scripts; the library adds it to the requirements.
const SHELL: &str = "/bin/sh";
/// The folders that belong to this package. The others belong to the distribution.
const OWN: [&str; 3] = ["etc/sandprobe", "usr/share/doc/sandprobe", "usr/share/licenses/sandprobe"];

const fn architecture(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86_64",
        Arch::Aarch64 => "aarch64",
    }
}

/// Returns the file's name, without a tilde, like the Debian package's.
pub(crate) fn name(version: &str, arch: Arch) -> String {
    format!("sandprobe-{version}-{REVISION}.{}.rpm", architecture(arch))
}

pub(crate) fn package(arch: Arch, parts: &Parts, origin: &Origin) -> Result<Vec<u8>> {
    // The fourth format is read by every rpm since 2015; gzip needs no library that an old one lacks.
    let config = BuildConfig::v4().compression(CompressionType::Gzip).source_date(origin.made);
    let mut package =
        PackageBuilder::new("sandprobe", &upstream(VERSION), LICENSE, architecture(arch), SUMMARY);
    package
        .using_config(config)
        .release(REVISION)
        .description(DESCRIPTION.join("\n"))
        .packager(&origin.maintainer)
        .add_changelog_entry(
            format!("{} - {}-{REVISION}", origin.maintainer, upstream(VERSION)),
            format!("- Version {VERSION}: CHANGELOG.md says what is new."),
            origin.made,
        )
        .build_host("localhost")
        .post_install_script(rpm::Scriptlet::new(POST).prog(vec![SHELL]))
        .pre_uninstall_script(rpm::Scriptlet::new(PREUN).prog(vec![SHELL]))
        .post_uninstall_script(rpm::Scriptlet::new(POSTUN).prog(vec![SHELL]));
    if let Some(home) = &origin.home {
        package.url(home);
    }
    for folder in OWN {
        package.with_dir_entry(FileOptions::dir(format!("/{folder}")).permissions(0o755))?;
    }
    for file in content::files(parts, Family::Fedora)? {
        let path = format!("/{}", file.path);
        let options = FileOptions::new(&path).permissions(file.mode());
        let options = match file.role {
            Role::Program | Role::Other => options,
            Role::Config => options.config().noreplace(),
            Role::Document => options.doc(),
            Role::License => options.license(),
        };
        match file.content {
            Content::Bytes(bytes) => package.with_file_contents(bytes, options)?,
            Content::Link(target) => package.with_symlink(FileOptions::symlink(path, target))?,
        };
    }
    let mut bytes = Vec::new();
    package.build()?.write(&mut bytes)?;
    Ok(bytes)
}
