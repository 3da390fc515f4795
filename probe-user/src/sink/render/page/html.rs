//! Writes HTML in which only text from this program's source is markup.
//!
//! **Invariant:** everything that is not `'static` is escaped or is a number.

use std::{fmt::Write as _, time::Duration};

use crate::sink::escape::escaped;

#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup.
    pub(super) fn put(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text from anywhere, as an element's content or in an attribute's double quotes.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in escaped(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    /// Appends a percentage with two decimals; zero if the whole is zero.
    pub(super) fn percent(&mut self, part: Duration, whole: Duration) -> &mut Self {
        let parts = part.as_nanos().saturating_mul(10_000).checked_div(whole.as_nanos()).unwrap_or(0);
        let parts = parts.min(10_000);
        // Writing to a string cannot fail.
        _ = match parts % 100 {
            0 => write!(self.0, "{}%", parts / 100),
            rest => write!(self.0, "{}.{rest:02}%", parts / 100),
        };
        self
    }

    pub(super) fn end(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Html;

    #[test]
    fn text_is_text_whatever_it_says() {
        let mut html = Html::default();
        html.put("<b title=\"").text("\" onload='x'").put("\">");
        html.text("</b><script>&\u{0}\u{202e}\n\u{7f}é漢").put("</b>");
        assert_eq!(
            html.end(),
            "<b title=\"&quot; onload=&#39;x&#39;\">\
             &lt;/b&gt;&lt;script&gt;&amp;\\u{0}\\u{202e}\\n\\u{7f}é漢</b>"
        );
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let told = |part, whole| {
            let mut html = Html::default();
            html.percent(Duration::from_nanos(part), Duration::from_nanos(whole));
            html.end()
        };
        assert_eq!([told(1, 3), told(1, 2), told(3, 1), told(1, 0)], ["33.33%", "50%", "100%", "0%"]);
    }
}
