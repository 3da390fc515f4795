//! The report of the measures, and that nothing is dropped if confinement is off.

use std::{error::Error, fs, thread};

use nix::{sys::stat::Mode as Bits, unistd::mkfifo};

use super::{Confined, Confinement, Measure, Mode, Needs, State, landlock, role::Role};

#[test]
fn what_is_given_up_is_said_in_one_line() {
    let measures = vec![
        (Measure::Capabilities, State::Full),
        (Measure::Files, State::Absent("this kernel has no Landlock".to_owned())),
        (Measure::Calls, State::Part("x".to_owned())),
    ];
    let full = Confined { mode: Mode::Full, measures };
    assert_eq!(full.to_string(), "capabilities, not files (this kernel has no Landlock), system calls (x)");
    let off = Confined { mode: Mode::Off, measures: Vec::new() };
    assert_eq!(off.to_string(), "no (--confine off): every thread keeps all privileges");
}

#[test]
fn what_is_off_gives_nothing_up() -> Result<(), Box<dyn Error>> {
    let status = || fs::read_to_string("/proc/thread-self/status");
    let held = |status: &str| -> Vec<String> {
        status
            .lines()
            .filter(|it| it.starts_with("Cap") || it.starts_with("Seccomp:"))
            .map(str::to_owned)
            .collect()
    };
    let confinement = Confinement::begin(Mode::Off, Needs::default(), || false)?;
    let before = held(&status()?);
    assert_eq!(held(&confinement.start(Role::Server, status)??), before);
    Ok(())
}

#[test]
fn a_fifo_in_the_place_of_the_state_directory_holds_up_no_thread() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Bits::S_IRWXU)?;
    let needs = Needs { state_dir: Some(fifo), ..Needs::default() };
    thread::spawn(move || landlock::enter(Role::Store, &needs)).join().expect("no panic")?;
    Ok(())
}
