//! The pages of `pods --html` and `boot --html`: the files that the `replay` tests compare.

use std::{fs, path::PathBuf, time::Instant};

use probe_user::{
    engine::boot::report::NodeBoot,
    sink::render::{
        chart::{self, Chart},
        page,
    },
};
use serde_json::{Value, json};
use tests::browser::{Browser, Scheme, key};

use crate::{fixture, look};

const BARS: &str = include_str!("picture/bars.js");

fn pods() -> Chart {
    let starts = fixture::starts();
    chart::pod::chart(&fixture::label(), &starts, &fixture::shares(&starts), &fixture::pods())
}

pub(crate) fn boots() -> Chart {
    let rows = fixture::boots();
    let rows: Vec<_> =
        rows.iter().map(|(recovery, report)| NodeBoot { node: "edge-1", recovery, report }).collect();
    chart::boot::chart(&rows, None)
}

pub(crate) fn charts() -> [(&'static str, Chart); 2] {
    [("pods", pods()), ("boots", boots())]
}

fn file(name: &str) -> String {
    let path =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data/pictures")).join(format!("{name}.html"));
    format!("file://{}", path.display())
}

#[test]
fn pages_are_legible_in_light_dark_and_narrow_form() {
    let browser = Browser::start().expect("a browser");
    for (name, _) in charts() {
        for (form, scheme, width) in
            [("light", Scheme::Light, 1280), ("dark", Scheme::Dark, 1280), ("narrow", Scheme::Light, 380)]
        {
            browser.prefer(scheme).expect("a scheme");
            browser.resize(width, 1000).expect("a size");
            browser.open(&file(name)).expect("a page");
            // Opens all rows, so that everything is checked.
            browser
                .run("for (const it of document.querySelectorAll('details')) it.open = true", &[])
                .expect("rows");
            browser.screenshot(&format!("{name}-{form}")).expect("a picture");
            look::check_legible(&browser);
            look::check_fits(&browser);
            look::check_no_other_requests(&browser, "file:///");
            let ground =
                browser.run("return getComputedStyle(document.body).backgroundColor", &[]).expect("a color");
            assert_eq!(ground == "rgb(255, 255, 255)", scheme == Scheme::Light, "{ground}");
        }
    }
}

/// The least width of a bar, relative to the whole. A shorter bar is drawn this wide, so that it is visible.
const LEAST: f64 = 1.0 / 500.0;

#[test]
fn bars_lie_in_their_row_and_have_its_length_together() {
    let browser = Browser::start().expect("a browser");
    browser.resize(1280, 1000).expect("a size");
    for (name, chart) in charts() {
        browser.open(&file(name)).expect("a page");
        browser
            .run("for (const it of document.querySelectorAll('details')) it.open = true", &[])
            .expect("rows");
        let rows = browser.run(BARS, &[]).expect("rows");
        let rows = rows.as_array().expect("rows");
        assert_eq!(rows.len(), chart.rows.len());
        for (drawn, row) in rows.iter().zip(&chart.rows) {
            assert!(drawn["out"].as_f64() < Some(0.6), "a bar lies outside: {drawn:#}");
            let number = |value: &Value| value.as_f64().expect("a number");
            let (scale, wide) = (number(&drawn["scale"]), number(&drawn["wide"]));
            let pixels = |ms: f64| ms / scale * wide;
            let bars = drawn["bars"].as_array().expect("bars");
            let parts: Vec<_> =
                row.parts().filter(|it| it.took.is_some_and(|took| !took.is_zero())).collect();
            assert_eq!(bars.len(), parts.len(), "{drawn:#}");
            for (bar, part) in bars.iter().zip(&parts) {
                let (at, took) =
                    (part.at.as_secs_f64() * 1e3, part.took.unwrap_or_default().as_secs_f64() * 1e3);
                assert!((number(&bar["at"]) - pixels(at)).abs() < 0.6, "{} at {bar}", part.name);
                let expected = pixels(took).max(wide * LEAST);
                assert!(
                    (number(&bar["wide"]) - expected).abs() < 0.6,
                    "{} is {bar}, not {expected}",
                    part.name
                );
            }
            let sum: f64 = bars.iter().map(|bar| number(&bar["wide"])).sum();
            let whole = pixels(row.took.as_secs_f64() * 1e3);
            #[expect(clippy::cast_precision_loss, reason = "a handful of bars")]
            let more = bars.len() as f64 * (wide * LEAST);
            assert!(sum >= whole - 1.0 && sum <= whole + more, "{}: {sum} pixels of {whole}", row.name);
        }
    }
}

#[test]
fn rows_open_by_the_keyboard_and_the_focus_is_visible() {
    let browser = Browser::start().expect("a browser");
    browser.open(&file("pods")).expect("a page");
    let open = "return [...document.querySelectorAll('details')].map((it) => it.open)";
    let before = browser.run(open, &[]).expect("rows");
    for n in 0..3 {
        browser.press(&[], &[key::TAB]).expect("a key");
        let focus = look::focus(&browser);
        assert_eq!((&focus["tag"], &focus["isSeen"]), (&json!("summary"), &json!(true)), "{focus}");
        browser.press(&[], &[key::ENTER]).expect("a key");
        let after = browser.run(open, &[]).expect("rows");
        assert_ne!(before[n], after[n], "row {n} by Enter");
    }
}

/// The names contain tags and characters that reverse the direction of writing.
#[test]
fn hostile_names_are_shown_as_text_only() {
    let browser = Browser::start().expect("a browser");
    for (name, _) in charts() {
        browser.open(&file(name)).expect("a page");
        let counts = browser.run(
            "const text = document.body.textContent;
             return [document.querySelectorAll('script, img, iframe, a, object, link, base').length,
               ['<script>alert(\"1\")</script>', '<img src=x onerror=\"alert(2)\">', '\\\\u{202e}'].map((it) => text.includes(it)),
               /[\\u202a-\\u202e\\u2066-\\u2069]/.test(text),
               [...document.querySelectorAll('*')].flatMap((it) => it.getAttributeNames()).filter((it) => it.startsWith('on'))]",
            &[],
        );
        assert_eq!(counts.expect("counts"), json!([0, [true, true, true], false, []]), "{name}");
        look::check_no_other_requests(&browser, "file:///");
    }
}

#[test]
fn five_hundred_pods_are_drawn_quickly() {
    let one = fixture::starts();
    let starts: Vec<_> = (0..500_u64).map(|n| fixture::named(&one[0], &format!("web-{n}"))).collect();
    let page = page::page(&chart::pod::chart(&fixture::label(), &starts, &fixture::shares(&starts), &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("many.html");
    fs::write(&path, page).expect("a page");
    let browser = Browser::start().expect("a browser");
    let begun = Instant::now();
    browser.open(&format!("file://{}", path.display())).expect("a page");
    let shown = browser.until("all rows", "return document.querySelectorAll('details').length === 500", &[]);
    shown.expect("rows");
    let took = begun.elapsed();
    assert!(took.as_secs() < 10, "{took:?}");
}
