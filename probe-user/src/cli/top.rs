//! `sandprobe top`: a live view of the node in a terminal, from the running agent.
//!
//! Keys, signals and the agent's answers come from threads of their own. The main thread only draws: a slow
//! agent, or a terminal that is gone, stops nothing else.

mod detail;
mod layout;
mod link;
mod model;
mod poll;
mod query;
mod screen;
mod table;
#[cfg(test)]
mod tests;
mod ui;
mod view;

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _},
    process,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use ratatui::{
    buffer::Buffer,
    crossterm::event::{self, Event, KeyEventKind},
    layout::Rect,
};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
};

use self::{
    link::{Connection, Link},
    model::Data,
    poll::{MIN_INTERVAL, Order, Poller},
    screen::{Screen, give_back_keys},
    table::KeptTables,
    ui::{Act, Ui},
    view::{Theme, View},
};
use super::{ExitStatus, client::AgentArgs, output};
use crate::duration::duration;

#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub(super) struct Top {
    /// How often the agent is asked (1s, 500ms); at least 200ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print what would be shown once, as plain text, and end
    #[arg(long)]
    once: bool,

    /// The size of what --once prints [default: that of the terminal, else 80x24]
    #[arg(long, value_name = "COLUMNSxLINES", requires = "once", value_parser = size)]
    size: Option<(u16, u16)>,

    #[command(flatten)]
    agent: AgentArgs,
}

const KEYS: &str = "\
Keys: q or ctrl-C leaves, ? lists all keys, Tab or 1 to 4 chooses a pane, z gives it the whole screen, Enter explains
the selected row, / filters, s sorts, a lists closed findings too, p pauses.";

/// The size if there is no terminal: that of a DEC VT100.
const DEFAULT_SIZE: (u16, u16) = (80, 24);
/// The largest size that is printed.
const MAX_SIZE: u16 = 1000;
/// While nothing answers, the time that is shown changes at least this often.
const TICK: Duration = Duration::from_secs(1);
/// How long after a signal the process ends even if the terminal takes nothing.
const GRACE: Duration = Duration::from_secs(1);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let may_be = MIN_INTERVAL..=Duration::from_secs(3600);
    if may_be.contains(&interval) { Ok(interval) } else { Err(format!("{text:?} is not from 200ms to 1h")) }
}

/// Parses `80x24`.
fn size(text: &str) -> Result<(u16, u16), String> {
    let parts = text
        .split_once('x')
        .and_then(|(width, height)| Some((width.parse::<u16>().ok()?, height.parse::<u16>().ok()?)));
    match parts {
        Some((width @ 1..=MAX_SIZE, height @ 1..=MAX_SIZE)) => Ok((width, height)),
        _ => Err(format!("{text:?} is not a size such as 80x24, of at most {MAX_SIZE} columns and lines")),
    }
}

/// What the main thread waits for.
enum Message {
    Terminal(Event),
    Answer(Result<Box<Data>, String>),
    /// End in order.
    End,
    /// The shell has continued this process, and may have changed the terminal.
    Continued,
}

impl Top {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        if self.once {
            return self.print();
        }
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            bail!("top needs a terminal: sandprobe top --once prints the same as text");
        }
        if output::is_dumb() {
            bail!(
                "this terminal only prints lines (TERM=dumb): sandprobe top --once prints the same as text"
            );
        }
        // What is wrong from the beginning is an error, before anything is drawn.
        let mut poller = Poller::new(self.agent);
        let first = poller.ask()?;
        let (sender, messages) = mpsc::channel();
        let (order, orders) = mpsc::channel();
        let interval = self.interval;
        watch_signals(sender.clone())?;
        let mut screen = Screen::enter()?;
        let asks = sender.clone();
        spawn("ask", move || poller.run(interval, &asks, &orders))?;
        spawn("keys", move || read_keys(&sender))?;
        let link = Link::new(Some(first), interval, Instant::now());
        follow(&mut screen, link, &messages, &order)?;
        Ok(ExitStatus::Ok)
    }

    fn print(self) -> anyhow::Result<ExitStatus> {
        let terminal = terminal_size::terminal_size_of(io::stdout());
        let (width, height) =
            self.size.or(terminal.map(|(width, height)| (width.0, height.0))).unwrap_or(DEFAULT_SIZE);
        let data = Poller::new(self.agent).ask()?;
        let view = View { data: Some(&data), connection: Connection::Well, theme: Theme { color: false } };
        let mut bytes = printed(&view, &mut Ui::default(), width, height).into_bytes();
        output::write(&mut bytes)?;
        Ok(ExitStatus::Ok)
    }
}

/// Returns a frame as plain text.
fn printed(view: &View<'_>, ui: &mut Ui, width: u16, height: u16) -> String {
    let screen = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(screen);
    view.draw(&view.tables(ui), ui, screen, &mut buffer);
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut x = 0;
        // A wide character stands for the cells that it covers.
        while let Some(cell) = buffer.cell((x, y)) {
            line += cell.symbol();
            let wide = ratatui::text::Span::raw(cell.symbol()).width().max(1);
            x = x.saturating_add(u16::try_from(wide).unwrap_or(1));
        }
        _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Draws until a key or a signal ends it.
fn follow(
    screen: &mut Screen,
    mut link: Link,
    messages: &Receiver<Message>,
    order: &Sender<Order>,
) -> anyhow::Result<()> {
    let theme = Theme { color: output::style().color };
    let mut ui = Ui::default();
    let mut tables = KeptTables::default();
    loop {
        let connection = link.connection(ui.is_paused, Instant::now());
        let view = View { data: link.data.as_ref(), connection, theme };
        screen.draw(&view, tables.of(view.data, &ui.query), &mut ui)?;
        // Everything that has come meanwhile goes into one frame.
        let mut next = match messages.recv_timeout(TICK) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => bail!("nobody reads the terminal any more"),
        };
        while let Some(message) = next {
            let act = match message {
                Message::End => Act::Leave,
                Message::Continued => Act::Redraw,
                // A view that was paused after the question does not change.
                Message::Answer(_) if ui.is_paused => Act::Nothing,
                Message::Answer(answer) => {
                    link.hear(answer, Instant::now());
                    tables.forget();
                    Act::Nothing
                }
                Message::Terminal(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    let data = link.data.as_ref();
                    ui.key(key, |query| tables.of(data, query))
                }
                Message::Terminal(_) => Act::Nothing,
            };
            match act {
                Act::Nothing => {}
                Act::Leave => return Ok(()),
                Act::Redraw => screen.take()?,
                Act::Suspend => screen.suspend()?,
                // The other thread ends only with this one.
                Act::Pause => _ = order.send(Order::Pause),
                Act::Refresh => {
                    link.resume(Instant::now());
                    order.send(Order::Now).ok();
                }
            }
            next = messages.try_recv().ok();
        }
    }
}

/// Waits for keys in a thread of its own: where the terminal is gone, crossterm may never come back.
fn read_keys(sender: &Sender<Message>) {
    while let Ok(event) = event::read() {
        if sender.send(Message::Terminal(event)).is_err() {
            return;
        }
    }
    sender.send(Message::End).ok();
}

fn watch_signals(sender: Sender<Message>) -> anyhow::Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT]).context("cannot watch for signals")?;
    spawn("signals", move || {
        for signal in signals.forever() {
            if signal == SIGCONT {
                sender.send(Message::Continued).ok();
                continue;
            }
            sender.send(Message::End).ok();
            // The main thread may wait for a terminal that takes nothing.
            thread::sleep(GRACE);
            give_back_keys();
            process::exit(0);
        }
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).context("cannot start a thread")
}
