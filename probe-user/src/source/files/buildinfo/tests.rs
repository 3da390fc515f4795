//! The build information of real executables, of hand-made ones in both layouts, and of invalid ones.

use std::{fs::File, io::Cursor};

use proptest::prelude::*;

use super::{GoBuild, Module, Unknown, elf, linked, module};

/// The bytes after the header of Debian's containerd 1.6.20, built by Go 1.19: no module, `-trimpath`, no
/// flags.
const DEBIAN: &str = "path\tgithub.com/containerd/containerd/cmd/containerd\nbuild\t-compiler=gc\n\
    build\t-trimpath=true\nbuild\tCGO_ENABLED=1\nbuild\tGOARCH=amd64\nbuild\tGOOS=linux\nbuild\tGOAMD64=v1\n";

const KUBELET: &str = "path\tk8s.io/kubernetes/cmd/kubelet\nmod\tk8s.io/kubernetes\t(devel)\t\n\
    dep\tgithub.com/containernetworking/cni\tv1.1.2\th1:wtRGZVv7olUHMOqouPpn3cXJWpJgM6+EUl31EQbXALQ=\n\
    dep\tk8s.io/api\tv0.0.0\t\n=>\t./staging/src/k8s.io/api\t(devel)\t\n\
    dep\tgo.uber.org/zap\tv1.19.0\t\n=>\tgo.uber.org/zap\tv1.19.1\th1:ue41HOKd1vGURxrmeKIgELGb3jPW9DMUDGtsinblHwI=\n\
    build\t-compiler=gc\n\
    build\t-ldflags=\"-X 'k8s.io/client-go/pkg/version.gitVersion=v1.28.2' \
     -X k8s.io/component-base/version.gitVersion=v1.28.2 -X=k8s.io/component-base/version.gitMajor=1 -s -w\"\n\
    build\t\"odd key\"=`a b`\nbuild\tvcs=git\n\
    build\tvcs.revision=89a4ea3e1e4ddd7f7572286090359983e0387b2f\nbuild\tvcs.time=2023-09-13T09:29:07Z\n\
    build\tvcs.modified=true\n";

/// `bridge` of the CNI project's own release.
const BRIDGE: &str = "path\tgithub.com/containernetworking/plugins/plugins/main/bridge\n\
    mod\tgithub.com/containernetworking/plugins\t(devel)\t\n\
    build\t-ldflags=\"-extldflags -static -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v1.1.1\"\n";

const ADDRESS: u64 = 0x40_0000;

fn fenced(modules: &str) -> Vec<u8> {
    let mut fenced = b"\x30\x77\xaf\x0c\x92\x74\x08\x02\x41\xe1\xc1\x07\xe6\xd6\x18\xe6".to_vec();
    fenced.extend_from_slice(modules.as_bytes());
    fenced.extend_from_slice(b"\xf9\x32\x43\x31\x86\x18\x20\x72\x00\x82\x42\x10\x41\x16\xd8\xf2");
    fenced
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    let (mut length, mut out) = (bytes.len(), Vec::new());
    while length > 0x7f {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(bytes);
    out
}

/// The contents of `.go.buildinfo`, at `offset` in the file.
fn info(go: &str, modules: &str, inline: bool, offset: usize) -> Vec<u8> {
    let mut info = b"\xff Go buildinf:".to_vec();
    info.extend_from_slice(&[8, if inline { 2 } else { 0 }]);
    info.resize(32, 0);
    let modules = fenced(modules);
    if inline {
        info.extend(counted(go.as_bytes()));
        info.extend(counted(&modules));
        return info;
    }
    let place = |offset: usize| (ADDRESS + u64::try_from(offset).unwrap()).to_le_bytes();
    let headers = offset + info.len();
    info[16..24].copy_from_slice(&place(headers));
    info[24..32].copy_from_slice(&place(headers + 16));
    let text = headers + 32;
    info.extend_from_slice(&place(text));
    info.extend_from_slice(&u64::try_from(go.len()).unwrap().to_le_bytes());
    info.extend_from_slice(&place(text + go.len()));
    info.extend_from_slice(&u64::try_from(modules.len()).unwrap().to_le_bytes());
    info.extend_from_slice(go.as_bytes());
    info.extend_from_slice(&modules);
    info
}

/// An ELF file with one segment for the whole file and the one section that is read.
fn executable(go: &str, modules: &str, inline: bool) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.go.buildinfo\0.shstrtab\0";
    const AT: usize = 64 + 56;
    let info = info(go, modules, inline, AT);
    let (names, table) = (AT + info.len(), AT + info.len() + NAMES.len());
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, word: u16| file.extend_from_slice(&word.to_le_bytes());
    let long = |file: &mut Vec<u8>, word: u64| file.extend_from_slice(&word.to_le_bytes());
    let size = |size: usize| u64::try_from(size).unwrap();
    // ET_EXEC for EM_X86_64, version 1.
    file.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [ADDRESS, 64, size(table)] {
        long(&mut file, word);
    }
    file.extend_from_slice(&[0; 4]);
    for word in [64, 56, 1, 64, 3, 2] {
        half(&mut file, word);
    }
    // PT_LOAD, readable and writable.
    file.extend_from_slice(&[1, 0, 0, 0, 6, 0, 0, 0]);
    for word in [0, ADDRESS, ADDRESS, size(table), size(table), 4096] {
        long(&mut file, word);
    }
    assert_eq!(file.len(), AT);
    file.extend_from_slice(&info);
    file.extend_from_slice(NAMES);
    // These fields of a section are read: name, kind, flags, address, offset, size.
    for (name, kind, offset, bytes) in
        [(0_u32, 0_u32, 0, 0), (1, 1, AT, info.len()), (15, 3, names, NAMES.len())]
    {
        file.extend_from_slice(&name.to_le_bytes());
        file.extend_from_slice(&kind.to_le_bytes());
        for word in [0, 0, size(offset), size(bytes), 0, 0, 0] {
            long(&mut file, word);
        }
        // The entry size is the last of the 64 bytes.
        file.truncate(file.len() - 8);
        long(&mut file, 0);
    }
    file
}

fn read(file: &[u8]) -> Result<GoBuild, Unknown> {
    GoBuild::read(Cursor::new(file))
}

#[test]
fn both_layouts_say_the_same() {
    for inline in [true, false] {
        let build = read(&executable("go1.20.8", KUBELET, inline)).expect("a Go executable");
        assert_eq!(build.go, "go1.20.8");
        assert_eq!(build.package.as_deref(), Some("k8s.io/kubernetes/cmd/kubelet"));
        assert_eq!(build.module, Some(Module { path: "k8s.io/kubernetes".to_owned(), version: None }));
        assert_eq!(build.version(), Some("v1.28.2"));
    }
}

#[test]
fn no_more_is_said_than_is_known() {
    let build = read(&executable("go1.19.8", DEBIAN, true)).expect("a Go executable");
    assert_eq!((build.version(), &build.module), (None, &None));
    let build = read(&executable("go1.15.15", "", false)).expect("a Go executable");
    assert_eq!(build, GoBuild { go: "go1.15.15".to_owned(), ..GoBuild::default() });
}

#[test]
fn a_version_is_the_projects_own() {
    let version = |lines: &str| module::parse(lines).version().map(str::to_owned);
    assert_eq!(version(BRIDGE).as_deref(), Some("v1.1.1"));
    assert_eq!(version("mod\texample.com/a/b/v2\tv2.1.0\th1:x=\n").as_deref(), Some("v2.1.0"));
    // A replacement line is about the line before it.
    let replaced =
        "mod\texample.com/a\tv1.0.0\n=>\texample.com/b\tv1.0.1\ndep\texample.com/c\tv3\n=>\tx\tv4\n";
    assert_eq!(version(replaced).as_deref(), Some("v1.0.1"));
    let flags = |flags: &str| format!("mod\texample.com/a/b/v2\tv2.1.0\nbuild\t-ldflags=\"{flags}\"\n");
    // The version that was set at link time wins. The version of another package does not count.
    assert_eq!(
        version(&flags("-s -X example.com/a/b/v2/version.Version=2.1.0-rc.1")).as_deref(),
        Some("2.1.0-rc.1")
    );
    assert_eq!(version(&flags("-X main.version=3")).as_deref(), Some("3"));
    assert_eq!(version(&flags("-X example.com/a/bb.Version=3 -X main.date=4")).as_deref(), Some("v2.1.0"));
    assert_eq!(version(&flags("-X example.com/a/b.apiVersion=3")).as_deref(), Some("v2.1.0"));
    // A line break in a version would add a line to a report.
    assert_eq!(version(&flags("-X 'main.version=3\\nleaked'")).as_deref(), Some("v2.1.0"));
}

#[test]
fn flags_are_taken_apart_as_go_does() {
    let strings = linked::strings(r#"-w -X a.b=1 --X=c.d=2=3 '-X=e.f=4 5' -X "g.h=6 7" X i.j=8 -X"#);
    let strings: Vec<_> = strings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(strings, [("a.b", "1"), ("c.d", "2=3"), ("e.f", "4 5"), ("g.h", "6 7")]);
}

#[test]
fn what_is_no_such_executable_is_refused() {
    let good = executable("go1.20", KUBELET, true);
    let with = |at: usize, byte: u8| {
        let mut file = good.clone();
        file[at] = byte;
        file
    };
    assert_eq!(read(b""), Err(Unknown::NotElf));
    assert_eq!(read(b"#!/bin/sh\nexec /opt/cni/bin/real\n"), Err(Unknown::NotElf));
    assert_eq!(read(&good[..60]), Err(Unknown::Malformed("ELF headers are")));
    assert_eq!(read(&with(4, 1)), Err(Unknown::Narrow));
    assert_eq!(read(&with(5, 2)), Err(Unknown::BigEndian));
    // Breaks the section's name, the magic, and each of the lengths.
    let name = good.windows(3).rposition(|text| text == b".go").expect("a name");
    assert_eq!(read(&with(name, b'_')), Err(Unknown::NotGo));
    assert_eq!(read(&with(120, b'_')), Err(Unknown::Malformed(".go.buildinfo is")));
    assert_eq!(read(&with(120 + 32, 0x7f)).map(|build| build.go), Err(Unknown::Malformed("version is")));
    // In the older layout: breaks the pointer size, the byte order, and the pointers.
    let mut old = executable("go1.17", KUBELET, false);
    old[120 + 14] = 4;
    assert_eq!(read(&old), Err(Unknown::Narrow));
    old[120 + 15] = 1;
    assert_eq!(read(&old), Err(Unknown::BigEndian));
    (old[120 + 14], old[120 + 15]) = (8, 0);
    old[120 + 16..120 + 24].fill(0xff);
    assert_eq!(read(&old), Err(Unknown::Malformed("pointer to the version is")));
}

#[test]
fn what_is_not_go_is_told_apart() {
    // This test's own executable: it is real, and not built by Go.
    let own = File::open(std::env::current_exe().expect("a path")).expect("an executable");
    assert_eq!(elf::read(own), Err(Unknown::NotGo));
}

#[test]
fn a_file_that_claims_much_is_not_read_for_it() {
    // 65,000 sections, and a `.go.buildinfo` of 3 GB: the file has that length, but it is sparse.
    let mut good = executable("go1.20", KUBELET, true);
    let table = good.len() - 3 * 64;
    good[table + 64 + 32..table + 64 + 40].copy_from_slice(&(3_u64 << 30).to_le_bytes());
    let file = tempfile::tempfile().expect("a file");
    file.set_len(4 << 30).expect("a length");
    std::os::unix::fs::FileExt::write_all_at(&file, &good, 0).expect("written");
    assert_eq!(elf::read(&file), Err(Unknown::Malformed("ELF headers are")));
    good[60..62].copy_from_slice(&65_000_u16.to_le_bytes());
    std::os::unix::fs::FileExt::write_all_at(&file, &good, 0).expect("written");
    assert!(elf::read(&file).is_err());
}

proptest! {
    #[test]
    fn mutated_executables_do_no_harm(
        inline: bool,
        bytes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        cut in any::<prop::sample::Index>(),
        cuts: bool,
    ) {
        let mut file = executable("go1.20", KUBELET, inline);
        for (at, byte) in bytes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if cuts {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(build) = read(&file) {
            let words = [Some(build.go.as_str()), build.version(), build.package.as_deref()];
            prop_assert!(words.iter().flatten().all(|word| word.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
        }
    }

    #[test]
    fn no_modules_are_too_strange(lines: String, flags: String) {
        module::parse(&lines);
        module::parse(&format!("build\t-ldflags={flags}\n"));
        linked::strings(&flags);
    }
}
