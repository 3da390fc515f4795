//! Cuts texts to the length that the API server accepts.

/// The beginning of a text, at most `longest` bytes, in whole characters.
pub(crate) fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
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
