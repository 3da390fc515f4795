//! Colors and attributes. Without colors, what matters is bold or reversed.

use ratatui::style::{Color, Modifier, Style};

use crate::cli::top::table::Tone;

#[derive(Clone, Copy, Debug)]
pub(in crate::cli::top) struct Theme {
    pub(in crate::cli::top) color: bool,
}

impl Theme {
    fn colored(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    #[expect(clippy::unused_self, reason = "one of the styles")]
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn of(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => self.plain(),
            Tone::Faint => Style::new().add_modifier(Modifier::DIM),
            Tone::Good => self.colored(Color::Green),
            Tone::Warning => self.colored(Color::Yellow),
            Tone::Bad => self.colored(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Live => self.colored(Color::Cyan).add_modifier(Modifier::BOLD),
        }
    }

    pub(super) fn heading(self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// The heading of the pane that keys act on.
    pub(super) fn focused(self) -> Style {
        if self.color {
            Style::new().fg(Color::Black).bg(Color::Cyan)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    pub(super) fn unfocused(self) -> Style {
        self.heading().add_modifier(Modifier::UNDERLINED)
    }

    #[expect(clippy::unused_self, reason = "one of the styles")]
    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The style while the agent does not answer.
    pub(super) fn alarm(self) -> Style {
        self.of(Tone::Bad).add_modifier(Modifier::REVERSED)
    }
}
