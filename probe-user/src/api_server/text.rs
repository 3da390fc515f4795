//! Texts in the forms that the API server accepts.

use jiff::Timestamp as WallTime;

/// The beginning of a text, at most `longest` bytes, in whole characters.
pub(crate) fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Returns the time as `metav1.Time` has it: RFC 3339, in UTC, in whole seconds.
pub(crate) fn seconds(at: WallTime) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!(cut("\u{20ac}\u{20ac}", 5), "\u{20ac}");
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("", 0), "");
    }
}
