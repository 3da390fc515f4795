//! Frames of the view.
