//! Checks for every page, whatever it shows.

use serde_json::{Value, json};
use tests::browser::Browser;

const CONTRAST: &str = include_str!("look/contrast.js");
/// "Web Content Accessibility Guidelines" 2.2, 1.4.3, for text that is not large.
const LEAST_CONTRAST: f64 = 4.5;

/// Checks that the browser refused nothing, and that all requests went to `own`.
#[track_caller]
pub(crate) fn check_no_other_requests(browser: &Browser, own: &str) {
    let complaints = browser.complaints().expect("a log");
    assert!(complaints.is_empty(), "{complaints:#?}");
    let requests = browser.requests().expect("a log");
    assert!(!requests.is_empty(), "requests are not logged");
    let others: Vec<_> = requests.iter().filter(|url| !url.starts_with(own)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

/// Checks that all visible text has enough contrast.
#[track_caller]
pub(crate) fn check_legible(browser: &Browser) {
    let contrasts = browser.run(CONTRAST, &[json!(LEAST_CONTRAST)]).expect("contrasts");
    assert!(contrasts["seen"].as_u64() > Some(5), "there is text: {contrasts}");
    assert_eq!(contrasts["faint"], json!([]), "text with less than {LEAST_CONTRAST}:1");
}

/// Checks that the page is as wide as the window, and that wider elements scroll by themselves.
#[track_caller]
pub(crate) fn check_fits(browser: &Browser) {
    let widths = browser.run(
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
    let widths = widths.expect("widths");
    assert!(widths[0].as_f64() <= widths[1].as_f64(), "{widths:#}");
}

/// Returns the element with the keyboard focus, and whether its focus is visible.
pub(crate) fn focus(browser: &Browser) -> Value {
    let script = "const it = document.activeElement, style = getComputedStyle(it);
         return { tag: it.localName, text: it.textContent.trim().slice(0, 60), id: it.id,
           isSeen: it.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 };";
    browser.run(script, &[]).expect("the focus")
}
