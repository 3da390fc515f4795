//! The terminal while it is ours, and how it is given back.
//!
//! **Invariant:** however the program ends, unless by SIGKILL, the terminal is as it was before.

use std::{
    io::{self, BufWriter, Stdout, Write as _},
    mem::ManuallyDrop,
    panic,
};

use anyhow::Context as _;
use nix::sys::signal::{Signal, raise};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

use super::{table::Tables, ui::Ui, view::View};

/// A frame is written at once, so that nobody sees half of it over ssh.
const FRAME: usize = 64 << 10;

pub(super) struct Screen {
    /// Not dropped: it would print on standard error, and panic, if the terminal is gone. [`give_back`] does
    /// its work.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    pub(super) fn enter() -> anyhow::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // The message would be lost on the other screen.
            give_back();
            before(panic);
        }));
        let out = BufWriter::with_capacity(FRAME, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out)).context("cannot use this terminal")?;
        let mut screen = Self { terminal: ManuallyDrop::new(terminal) };
        screen.take()?;
        Ok(screen)
    }

    /// Takes the terminal, or takes it again after the shell had it.
    pub(super) fn take(&mut self) -> anyhow::Result<()> {
        // crossterm does nothing if it believes that the keys are ours.
        let taken = disable_raw_mode()
            .and_then(|()| enable_raw_mode())
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
            .and_then(|()| self.clear());
        taken.context("cannot use this terminal")
    }

    /// Causes the next frame to be drawn whole. `Terminal::clear` would ask the terminal where the cursor is,
    /// and wait for its answer among the keys.
    fn clear(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    pub(super) fn draw(&mut self, view: &View<'_>, tables: &Tables, ui: &mut Ui) -> anyhow::Result<()> {
        let drawn = self.terminal.draw(|frame| view.draw(tables, ui, frame.area(), frame.buffer_mut()));
        drawn.map(drop).context("cannot write to the terminal")
    }

    /// Stops this process until the shell continues it.
    pub(super) fn suspend(&mut self) -> anyhow::Result<()> {
        give_back();
        // Without a shell that could continue it, the kernel ignores the signal.
        raise(Signal::SIGTSTP).context("cannot stop this process")?;
        self.take()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back. Nobody could read an error.
fn give_back() {
    give_back_keys();
    execute!(io::stdout(), LeaveAlternateScreen, Show).ok();
    io::stdout().flush().ok();
}

/// Gives back the part of the terminal that needs no waiting for it.
pub(super) fn give_back_keys() {
    disable_raw_mode().ok();
}
