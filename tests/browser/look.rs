//! What every page must be, whatever it shows.

use serde_json::{Value, json};
use tests::browser::Browser;

const CONTRAST: &str = include_str!("look/contrast.js");
/// "Web Content Accessibility Guidelines" 2.2, 1.4.3: of text that is not large.
const LEAST_CONTRAST: f64 = 4.5;

/// Nothing was refused, and nobody but `own` was asked for anything.
#[track_caller]
pub(crate) fn is_quiet(browser: &Browser, own: &str) {
    let complaints = browser.complaints().expect("a log");
    assert!(complaints.is_empty(), "{complaints:#?}");
    let requests = browser.requests().expect("a log");
    assert!(!requests.is_empty(), "requests are not logged");
    let others: Vec<_> = requests.iter().filter(|url| !url.starts_with(own)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

/// All text that is seen can be read, by the styles that it has.
#[track_caller]
pub(crate) fn is_legible(browser: &Browser) {
    let told = browser.run(CONTRAST, &[json!(LEAST_CONTRAST)]).expect("contrasts");
    assert!(told["seen"].as_u64() > Some(5), "there is text: {told}");
    assert_eq!(told["faint"], json!([]), "of less than {LEAST_CONTRAST}:1");
}

/// It is as wide as the window, and what is wider scrolls by itself.
#[track_caller]
pub(crate) fn fits(browser: &Browser) {
    let told = browser.run(
        "const all = document.scrollingElement;
         const out = [...document.querySelectorAll('body *')].filter((it) => {
           const box = it.getBoundingClientRect();
           if (!box.width || box.right <= innerWidth + 1) return false;
           for (let up = it; up; up = up.parentElement) if (getComputedStyle(up).overflowX !== 'visible') return false;
           return true;
         });
         return [all.scrollWidth, innerWidth, out.slice(0, 5).map((it) => it.outerHTML.slice(0, 120))];",
        &[],
    );
    let told = told.expect("widths");
    assert!(told[0].as_f64() <= told[1].as_f64(), "{told:#}");
}

/// Where the keyboard is, and whether that can be seen.
pub(crate) fn focus(browser: &Browser) -> Value {
    let script = "const it = document.activeElement, style = getComputedStyle(it);
         return { tag: it.localName, text: it.textContent.trim().slice(0, 60), id: it.id,
           isSeen: it.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 };";
    browser.run(script, &[]).expect("the focus")
}
