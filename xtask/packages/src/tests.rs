//! Builds both packages of a made-up program and opens them again: the Debian one as an archive of tar files,
//! the RPM with the library `rpm`.

use crate::content::{self, Parts};
use crate::{Arch, Origin, VERSION, deb, person, rpm, upstream, url};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

const PROGRAM: &[u8] = b"\x7fELF program";

fn parts() -> Parts {
    let papers = [
        ("man/sandprobe.1", ".TH sandprobe 1"),
        ("completions/bash/sandprobe", "complete"),
        ("completions/fish/sandprobe.fish", "complete"),
        ("completions/zsh/_sandprobe", "#compdef"),
    ];
    let papers = papers.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    Parts { program: PROGRAM.to_vec(), papers: papers.into(), sbom: b"{}".to_vec() }
}

fn origin(made: u32) -> Origin {
    let home = Some("https://git.example/sandprobe".to_owned());
    Origin { made, home, maintainer: "A Person <person@example.org>".to_owned() }
}

/// The mode, and the content or the target of a link.
type Files = BTreeMap<String, (u32, Vec<u8>)>;

fn unpacked(packed: &[u8]) -> Files {
    let mut files = Files::new();
    for entry in tar::Archive::new(GzDecoder::new(packed)).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 7));
        let mode = header.mode().unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut bytes = entry.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
        entry.read_to_end(&mut bytes).unwrap();
        assert!(files.insert(path, (mode, bytes)).is_none(), "twice in the package");
    }
    files
}

/// Returns what dpkg reads, and what it unpacks.
fn opened() -> (Files, Files) {
    let package = deb::package(Arch::X86_64, &parts(), &origin(7)).unwrap();
    let mut archive = ar::Archive::new(Cursor::new(package));
    let mut members = Vec::new();
    while let Some(entry) = archive.next_entry() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        members.push((String::from_utf8(entry.header().identifier().to_vec()).unwrap(), bytes));
    }
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"], "in the order of deb(5)");
    assert_eq!(members[0].1, b"2.0\n");
    (unpacked(&members[1].1), unpacked(&members[2].1))
}

fn text(files: &Files, path: &str) -> String {
    String::from_utf8(files[path].1.clone()).unwrap()
}

fn gunzipped(bytes: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

fn modes(files: &Files) -> Vec<(&str, u32)> {
    files.iter().filter(|(path, _)| !path.ends_with('/')).map(|(path, (mode, _))| (&**path, *mode)).collect()
}

#[test]
fn the_debian_package_has_its_files_where_debian_has_them() {
    let (about, data) = opened();
    assert_eq!(
        modes(&data),
        [
            ("./etc/sandprobe/sandprobe.toml", 0o644),
            ("./usr/bin/kubectl-sandprobe", 0o777),
            ("./usr/bin/sandprobe", 0o755),
            ("./usr/lib/systemd/system/sandprobe.service", 0o644),
            ("./usr/share/bash-completion/completions/sandprobe", 0o644),
            ("./usr/share/doc/sandprobe/README.md", 0o644),
            ("./usr/share/doc/sandprobe/changelog.Debian.gz", 0o644),
            ("./usr/share/doc/sandprobe/changelog.gz", 0o644),
            ("./usr/share/doc/sandprobe/copyright", 0o644),
            ("./usr/share/doc/sandprobe/sandprobe.cdx.json", 0o644),
            ("./usr/share/fish/vendor_completions.d/sandprobe.fish", 0o644),
            ("./usr/share/lintian/overrides/sandprobe", 0o644),
            ("./usr/share/man/man1/kubectl-sandprobe.1.gz", 0o777),
            ("./usr/share/man/man1/sandprobe.1.gz", 0o644),
            ("./usr/share/zsh/vendor-completions/_sandprobe", 0o644),
        ]
    );
    assert_eq!(data["./usr/bin/sandprobe"].1, PROGRAM);
    assert_eq!(text(&data, "./usr/bin/kubectl-sandprobe"), "sandprobe");
    // The folders are listed too: dpkg removes a folder that no package lists any more.
    assert!(
        ["./", "./etc/", "./etc/sandprobe/", "./usr/share/doc/sandprobe/"]
            .iter()
            .all(|folder| data[*folder].0 == 0o755)
    );
    let unit = text(&data, "./usr/lib/systemd/system/sandprobe.service");
    assert!(unit.contains("\nExecStart=/usr/bin/sandprobe run ") && !unit.contains("/usr/local"), "{unit}");
    assert!(unit.contains("\nEnvironment=SANDPROBE_CONFIG=/etc/sandprobe/sandprobe.toml\n"), "{unit}");
    assert_eq!(gunzipped(&data["./usr/share/man/man1/sandprobe.1.gz"].1), ".TH sandprobe 1");

    assert_eq!(
        modes(&about),
        [
            ("./conffiles", 0o644),
            ("./control", 0o644),
            ("./md5sums", 0o644),
            ("./postinst", 0o755),
            ("./postrm", 0o755),
            ("./prerm", 0o755),
        ]
    );
    assert_eq!(text(&about, "./conffiles"), "/etc/sandprobe/sandprobe.toml\n");
    let sums = text(&about, "./md5sums");
    // `printf '\177ELF program' | md5sum`
    assert!(sums.contains("9b29911353b7269a2e2548797c2d659f  usr/bin/sandprobe\n"), "{sums}");
    assert!(!sums.contains("sandprobe.toml") && !sums.contains("kubectl"), "{sums}");
}

#[test]
fn the_debian_package_says_what_it_is() {
    let (about, data) = opened();
    let control = text(&about, "./control");
    let field = |name: &str| {
        let value = control.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        value.unwrap_or_default().to_owned()
    };
    assert_eq!(field("Package"), "sandprobe");
    assert_eq!(field("Version"), format!("{}-1", upstream(VERSION)));
    assert_eq!(field("Architecture"), "amd64");
    assert_eq!(field("Maintainer"), "A Person <person@example.org>");
    assert_eq!(field("Homepage"), "https://git.example/sandprobe");
    assert_eq!(field("Depends"), "", "the program is static");
    assert!(field("Installed-Size").parse::<u64>().unwrap() > 20, "{control}");
    // After the summary each line is a part of the description, which begins with a space.
    let description: Vec<&str> =
        control.lines().skip_while(|line| !line.starts_with("Description: ")).collect();
    assert!(description.len() > 3, "{control}");
    assert!(description[1..].iter().all(|line| line.starts_with(' ') && line.len() < 80), "{control}");

    let copyright = text(&data, "./usr/share/doc/sandprobe/copyright");
    assert!(copyright.contains("\nCopyright: 2026 The sandprobe developers\n"), "{copyright}");
    assert!(copyright.contains("\nLicense: MIT or Apache-2.0\n"), "{copyright}");
    assert!(copyright.contains("\n Permission is hereby granted, free of charge, "), "{copyright}");
    let changelog = gunzipped(&data["./usr/share/doc/sandprobe/changelog.Debian.gz"].1);
    assert!(changelog.starts_with(&format!("sandprobe ({}-1) unstable; ", upstream(VERSION))), "{changelog}");
    assert!(
        changelog.ends_with(" -- A Person <person@example.org>  Thu, 01 Jan 1970 00:00:07 +0000\n"),
        "{changelog}"
    );
}

#[test]
fn the_rpm_has_its_files_where_fedora_has_them() {
    let bytes = rpm::package(Arch::Aarch64, &parts(), &origin(7)).unwrap();
    let package = ::rpm::Package::parse(&mut &bytes[..]).unwrap();
    package.verify_digests().unwrap();
    let about = &package.metadata;
    assert_eq!(about.get_name().unwrap(), "sandprobe");
    assert_eq!((about.get_version().unwrap(), about.get_release().unwrap()), (&*upstream(VERSION), "1"));
    assert_eq!(about.get_arch().unwrap(), "aarch64");
    assert_eq!(about.get_license().unwrap(), "MIT OR Apache-2.0");
    assert_eq!(about.get_url().unwrap(), "https://git.example/sandprobe");
    let needs = about.get_requires().unwrap();
    let needs: Vec<&str> =
        needs.iter().map(|need| need.name.as_str()).filter(|name| !name.starts_with("rpmlib(")).collect();
    assert_eq!(needs, ["/bin/sh", "/bin/sh", "/bin/sh", "config(sandprobe)"]);
    for (script, word) in [
        (about.get_post_install_script(), "preset sandprobe.service"),
        (about.get_pre_uninstall_script(), "sandprobe detach"),
        (about.get_post_uninstall_script(), "try-restart sandprobe.service"),
    ] {
        let script = script.unwrap();
        assert!(script.script.contains(word), "{}", script.script);
        assert_eq!(script.program.as_deref(), Some(&["/bin/sh".to_owned()][..]));
    }

    let entries = about.get_file_entries().unwrap();
    assert!(
        entries.iter().all(|entry| entry.modified_at().0 == 7),
        "they have another time than the release"
    );
    let told: Vec<String> = entries
        .iter()
        .map(|entry| {
            assert_eq!((entry.user(), entry.group()), ("root", "root"));
            let link = entry.linkto().map(|target| format!(" -> {target}")).unwrap_or_default();
            let flags = entry.flags();
            let marks = [
                (::rpm::FileFlags::CONFIG | ::rpm::FileFlags::NOREPLACE, " config"),
                (::rpm::FileFlags::DOC, " doc"),
                (::rpm::FileFlags::LICENSE, " license"),
            ];
            let marks: String =
                marks.iter().filter(|(is, _)| flags.contains(*is)).map(|(_, mark)| *mark).collect();
            format!("{:o} {}{link}{marks}", entry.mode().raw_mode(), entry.path().display())
        })
        .collect();
    let expected = [
        "40755 /etc/sandprobe",
        "100644 /etc/sandprobe/sandprobe.toml config",
        "120777 /usr/bin/kubectl-sandprobe -> sandprobe",
        "100755 /usr/bin/sandprobe",
        "100644 /usr/lib/systemd/system/sandprobe.service",
        "100644 /usr/share/bash-completion/completions/sandprobe",
        "40755 /usr/share/doc/sandprobe",
        "100644 /usr/share/doc/sandprobe/CHANGELOG.md doc",
        "100644 /usr/share/doc/sandprobe/README.md doc",
        "100644 /usr/share/doc/sandprobe/sandprobe.cdx.json doc",
        "100644 /usr/share/fish/vendor_completions.d/sandprobe.fish",
        "40755 /usr/share/licenses/sandprobe",
        "100644 /usr/share/licenses/sandprobe/LICENSE-APACHE license",
        "100644 /usr/share/licenses/sandprobe/LICENSE-MIT license",
        "120777 /usr/share/man/man1/kubectl-sandprobe.1.gz -> sandprobe.1.gz",
        "100644 /usr/share/man/man1/sandprobe.1.gz doc",
        "100644 /usr/share/zsh/site-functions/_sandprobe",
    ];
    assert_eq!(told, expected);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for package in [deb::package, rpm::package] {
        let made = |at| package(Arch::X86_64, &parts(), &origin(at)).unwrap();
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
    }
}

/// dash reads them on Debian, and bash on Fedora.
#[test]
fn a_shell_can_read_the_scripts() {
    let (about, _) = opened();
    let debian = ["./postinst", "./postrm", "./prerm"].map(|name| text(&about, name));
    let rpm = rpm::package(Arch::X86_64, &parts(), &origin(7)).unwrap();
    let rpm = ::rpm::Package::parse(&mut &rpm[..]).unwrap().metadata;
    let rpm =
        [rpm.get_post_install_script(), rpm.get_pre_uninstall_script(), rpm.get_post_uninstall_script()];
    for script in debian.into_iter().chain(rpm.map(|script| script.unwrap().script)) {
        let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success(), "{script}");
    }
}

/// Purges below another root, where it looks for state, socket and hooks of an agent.
#[test]
fn a_purge_leaves_the_state_to_an_agent_that_lives() {
    let (about, _) = opened();
    let root = tempfile::tempdir().unwrap();
    let below = |path: &str| root.path().join(path.trim_start_matches('/'));
    let [state, run, hooks] = ["/var/lib/sandprobe", "/run/sandprobe", "/sys/fs/bpf/sandprobe"].map(below);
    let script = ["/var/lib/", "/run/sandprobe", "/sys/fs/bpf/"]
        .iter()
        .fold(text(&about, "./postrm"), |script, path| {
            script.replace(path, &below(path).display().to_string())
        })
        // Another test covers the service.
        .replace("[ -d /run/systemd/system ]", "false")
        .replace("command -v deb-systemd-helper", "false");
    let purged = || {
        let ended = Command::new("sh").args(["-c", &script, "postrm", "purge"]).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        (String::from_utf8(ended.stderr).unwrap(), state.exists(), run.exists())
    };
    let socket = run.join("sandprobe.sock");
    let (gone, kept) = ((String::new(), false, false), (true, true));
    fs::create_dir_all(&state).unwrap();
    fs::create_dir_all(&run).unwrap();
    let agent = UnixListener::bind(&socket).unwrap();
    let (told, state_stays, run_stays) = purged();
    assert!(told.starts_with("sandprobe: another agent of this node has hooks or listens"), "{told}");
    assert_eq!((state_stays, run_stays), kept);
    // A killed agent leaves its socket.
    drop(agent);
    assert!(socket.exists());
    assert_eq!(purged(), gone);
    for folder in [&state, &run, &hooks] {
        fs::create_dir_all(folder).unwrap();
    }
    let (_, state_stays, run_stays) = purged();
    assert_eq!((state_stays, run_stays), kept);
    fs::remove_dir(&hooks).unwrap();
    assert_eq!(purged(), gone);
}

#[test]
fn names_follow_the_families() {
    let names = |version| (deb::name(version, Arch::Aarch64), rpm::name(version, Arch::X86_64));
    let of = |deb: &str, rpm: &str| (deb.to_owned(), rpm.to_owned());
    assert_eq!(names("1.2.3"), of("sandprobe_1.2.3-1_arm64.deb", "sandprobe-1.2.3-1.x86_64.rpm"));
    // The file's name of a pre-release has no tilde; the version, by which it is sorted, has one.
    let before = "1.2.3-rc.1";
    assert_eq!(names(before), of("sandprobe_1.2.3-rc.1-1_arm64.deb", "sandprobe-1.2.3-rc.1-1.x86_64.rpm"));
    assert_eq!((deb::version(before), upstream(before)), of("1.2.3~rc.1-1", "1.2.3~rc.1"));
    assert_eq!((deb::version("1.2.3"), upstream("1.2.3")), of("1.2.3-1", "1.2.3"));
}

#[test]
fn who_answers_is_one_person_and_the_pages_one_address() {
    assert_eq!(person("A B <a@b.org>").as_deref(), Ok("A B <a@b.org>"));
    for wrong in ["a@b.org", "A <>", " <a@b.org>", "A <a@b.org>\nDepends: x", "A\nB: <a@b.org>", "A <a b@c>"]
    {
        assert!(person(wrong).is_err(), "{wrong:?}");
    }
    assert!(url("https://git.example/sandprobe").is_ok());
    for wrong in ["git.example", "http://git.example", "https://x\nDepends: y", "https://x y"] {
        assert!(url(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn papers_come_in_a_tar_file() {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    tar.append_data(&mut header, "man/sandprobe.1", &b".TH"[..]).unwrap();
    let papers = content::untarred(&tar.into_inner().unwrap()).unwrap();
    assert_eq!(papers, [("man/sandprobe.1".to_owned(), b".TH".to_vec())]);
    assert!(content::untarred(&[b'x'; 1024]).is_err());
}

#[test]
fn a_paper_of_an_unknown_kind_is_refused() {
    for (path, why) in [("notes.txt", "neither"), ("completions/tcsh/sandprobe", "not known")] {
        let parts = Parts { papers: vec![(path.to_owned(), Vec::new())], ..parts() };
        let error = content::files(&parts, content::Family::Debian).err().unwrap().to_string();
        assert!(error.contains(path) && error.contains(why), "{error}");
    }
}
