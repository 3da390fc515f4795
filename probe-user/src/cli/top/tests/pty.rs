//! A program in a terminal of its own, and what is on its screen.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    num::NonZero,
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt as _, process::ExitStatusExt as _},
    },
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::OFlag,
    pty::{grantpt, posix_openpt, ptsname_r, unlockpt},
    sys::{
        signal::{Signal, kill},
        termios::{SetArg, Termios, tcgetattr, tcsetattr},
    },
    unistd::Pid,
};

/// How long anything may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Pty {
    child: Child,
    keys: File,
    /// The other side, which keeps the settings after the program has ended.
    terminal: File,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// All output so far.
    pub(crate) bytes: Vec<u8>,
    before: Termios,
    /// The other thread must close the terminal.
    hangs_up: Arc<AtomicBool>,
}

impl Pty {
    /// Starts the program with the terminal as its controlling one.
    pub(crate) fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let (keys, terminal) = open().expect("a terminal");
        let (columns, lines) = (80, 24);
        set_size(&terminal, columns, lines);
        let before = tcgetattr(&terminal).expect("its settings");
        let end = || Stdio::from(terminal.try_clone().expect("a file"));
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(program)
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("setsid (util-linux)");
        let mut reader = keys.try_clone().expect("a file");
        let (told, output) = mpsc::channel();
        let hangs_up = Arc::new(AtomicBool::new(false));
        let closes = Arc::clone(&hangs_up);
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut part) {
                if closes.load(Ordering::Relaxed) || told.send(part[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let parser = vt100::Parser::new(cells(lines), cells(columns), 0);
        Self { child, keys, terminal, output, parser, bytes: Vec::new(), before, hangs_up }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it takes keys");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")), signal).expect("it runs");
    }

    /// Gives the terminal another size, and tells the program as the kernel does.
    pub(crate) fn resize(&mut self, columns: u16, lines: u16) {
        set_size(&self.terminal, columns, lines);
        self.parser.screen_mut().set_size(cells(lines), cells(columns));
    }

    /// Waits until the screen matches; returns its text.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        while !is_so(self.parser.screen()) {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => {
                    self.parser.process(&bytes);
                    self.bytes.extend(bytes);
                }
                Err(error) => panic!("{what}: {error}; on the screen:\n{}", self.parser.screen().contents()),
            }
        }
        self.parser.screen().contents()
    }

    #[track_caller]
    pub(crate) fn until_text(&mut self, text: &str) -> String {
        self.until(text, |screen| screen.contents().contains(text))
    }

    /// Changes the settings without the program, as a shell does that got the terminal back.
    pub(crate) fn set_as_before(&self) {
        tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before).expect("a terminal");
    }

    /// Compares only the modes: the C library's structure may have room that the kernel does not fill.
    pub(crate) fn is_as_before(&self) -> bool {
        let now = tcgetattr(&self.terminal).expect("its settings");
        now.input_flags == self.before.input_flags
            && now.output_flags == self.before.output_flags
            && now.control_flags == self.before.control_flags
            && now.local_flags == self.before.local_flags
    }

    /// Waits for the end; returns the exit code.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            // Nobody else reads what it writes at the end.
            while let Ok(bytes) = self.output.try_recv() {
                self.parser.process(&bytes);
                self.bytes.extend(bytes);
            }
            if let Some(status) = self.child.try_wait().expect("its status") {
                break status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.parser.screen().contents());
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.signal(), None, "it was killed");
        status.code()
    }

    /// Waits for the end, and checks that the terminal is as it was before.
    #[track_caller]
    pub(crate) fn ended_and_given_back(&mut self) -> Option<i32> {
        let code = self.ended();
        self.until("the screen is given back", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        assert!(self.is_as_before(), "keys are echoed again, and lines edited");
        code
    }

    /// Takes the terminal away, as when ssh is cut off. The program must write something to notice it.
    #[track_caller]
    pub(crate) fn hang_up(self) -> Option<i32> {
        let Self { mut child, keys, terminal, hangs_up, .. } = self;
        hangs_up.store(true, Ordering::Relaxed);
        drop((keys, terminal));
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = child.try_wait().expect("its status") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(10));
        }
        child.kill().expect("it runs");
        panic!("it does not end");
    }
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a size")
}

/// Opens both sides of a new terminal. No other program that is started meanwhile inherits one of them.
fn open() -> io::Result<(File, File)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let keys = posix_openpt(flags)?;
    grantpt(&keys)?;
    unlockpt(&keys)?;
    let options = File::options().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).to_owned();
    let terminal = options.open(ptsname_r(&keys)?)?;
    Ok((File::from(OwnedFd::from(keys)), terminal))
}

fn set_size(terminal: &File, columns: u16, lines: u16) {
    let done = Command::new("stty")
        .args(["rows", &lines.to_string(), "cols", &columns.to_string()])
        .stdin(terminal.try_clone().expect("a file"))
        .status();
    assert!(done.expect("stty (coreutils)").success());
}
