//! The guards return the numbers that the kernel gives, and dropping a guard removes what it made.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, process::Command};

use anyhow::{Context as _, Result};
use tests::{
    cgroupfs, command,
    guard::{
        address::{AddressGuard, Prefix},
        cgroup::CgroupGuard,
        netns::{MountedNetns, OpenNetns, ProcessNetns},
    },
};

#[test]
fn a_mounted_namespace_is_there_until_its_end() -> Result<()> {
    let netns = MountedNetns::create()?;
    let path = netns.path().to_owned();
    assert_ne!(u64::from(netns.inode()), fs::metadata("/proc/self/ns/net")?.ino());
    let link =
        command::output("nsenter", &[&format!("--net={}", path.display()), "readlink", "/proc/self/ns/net"])?;
    assert_eq!(link.trim(), format!("net:[{}]", netns.inode()));
    netns.end()?;
    assert!(!path.exists());
    Ok(())
}

#[test]
fn an_open_namespace_has_no_name() -> Result<()> {
    let mounted = MountedNetns::create()?;
    let (path, inode) = (mounted.path().to_owned(), mounted.inode());
    let open = mounted.into_open()?;
    assert_eq!(open.inode(), inode);
    assert!(!path.exists());
    drop(open);
    // The kernel gives no number twice while it is in use.
    let (one, other) = (OpenNetns::create()?, OpenNetns::create()?);
    assert_ne!(one.inode(), other.inode());
    Ok(())
}

#[test]
fn a_process_namespace_ends_with_its_process() -> Result<()> {
    let netns = ProcessNetns::create()?;
    let process = format!("/proc/{}", netns.pid());
    let link = fs::read_link(format!("{process}/ns/net"))?;
    assert_eq!(link.to_string_lossy(), format!("net:[{}]", netns.inode()));
    netns.end()?;
    assert!(!Path::new(&process).exists());
    Ok(())
}

#[test]
fn a_cgroup_takes_its_processes_with_it() -> Result<()> {
    for hierarchy in cgroupfs::hierarchies()? {
        // An empty cpuset refuses every process.
        if hierarchy.controllers.split(',').any(|controller| controller == "cpuset") {
            continue;
        }
        let cgroup = CgroupGuard::create(&hierarchy)?;
        let directory = cgroup.directory().to_owned();
        assert_eq!(cgroup.id(), hierarchy.id_of(cgroup.path())?);
        let mut process = Command::new("sleep").arg("600").spawn()?;
        cgroup.attach(&process)?;
        let member = fs::read_to_string(format!("/proc/{}/cgroup", process.id()))?;
        assert!(member.lines().any(|line| line.ends_with(cgroup.path())), "not in {}", cgroup.path());
        // A thread waits for the process while the guard ends it, as the parent of a container's process
        // does.
        let waiter = std::thread::spawn(move || process.wait());
        cgroup.end()?;
        assert!(!directory.exists());
        let status = waiter.join().ok().context("the waiting thread panicked")??;
        assert!(!status.success());
    }
    Ok(())
}

#[test]
fn addresses_come_and_go_together() -> Result<()> {
    let netns = MountedNetns::create()?;
    let name = netns.path().file_name().and_then(|name| name.to_str()).context("no name")?;
    let prefixes = [
        Prefix { address: "10.9.8.7".parse()?, length: 32 },
        Prefix { address: "fd00::9:8:7".parse()?, length: 128 },
    ];
    let shown = || command::output("ip", &["-netns", name, "-oneline", "address", "show", "dev", "lo"]);
    let guard = AddressGuard::add(&netns, "lo", &prefixes)?;
    let addresses = shown()?;
    assert!(addresses.contains("10.9.8.7/32") && addresses.contains("fd00::9:8:7/128"), "{addresses}");
    guard.end()?;
    let addresses = shown()?;
    assert!(!addresses.contains("10.9.8.7") && !addresses.contains("fd00::9"), "{addresses}");
    Ok(())
}
