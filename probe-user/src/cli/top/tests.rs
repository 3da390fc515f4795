//! Frames of the view: what is on a screen, whatever the node and the screen are like.

mod node;
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod pty;

use std::{sync::Arc, time::Duration};

use nix::time::{ClockId, clock_gettime};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::pty::Pty;
use super::{
    link::Connection,
    model::{Data, PodList, State},
    printed,
    query::Pane,
    table::KeptTables,
    ui::{Act, Ui},
    view::{Theme, View},
};
use crate::{
    cli::{client::AgentArgs, snapshot::AgentSnapshot},
    golden,
    model::{change::Finding, finding::Key, id::ContainerId, time::Timestamp},
};

/// What the agent on a node with this many pods answers.
pub(super) fn data(pods: u64) -> Data {
    answered(&node::documents(pods))
}

fn answered(documents: &[(&str, u16, Value)]) -> Data {
    let body = |path: &str| {
        let (_, _, body) = documents.iter().find(|(known, ..)| *known == path).expect(path);
        serde_json::to_vec(body).expect("JSON")
    };
    fn document<T: DeserializeOwned>(bytes: &[u8]) -> T {
        serde_json::from_slice(bytes).expect("a document")
    }
    let PodList { pods } = document(&body("/v1/pods"));
    let snapshot = AgentSnapshot::answered(&AgentArgs::default(), &body("/v1/state")).expect("a state");
    Data {
        doctor: document(&body("/v1/doctor")),
        verdict: document(&body("/v1/verdict")),
        addresses: document(&body("/v1/pools")),
        state: Arc::new(State { snapshot, pods }),
        rates: None,
    }
}

fn view(data: Option<&Data>) -> View<'_> {
    View { data, connection: Connection::Well, theme: Theme { color: true } }
}

/// Draws a frame after these keys, and one before each of them, as in a terminal.
fn frame(view: &View<'_>, (width, height): (u16, u16), keys: &[KeyCode]) -> String {
    let mut ui = Ui::default();
    let mut frame = printed(view, &mut ui, width, height);
    for key in keys {
        let tables = view.tables(&ui);
        assert_eq!(ui.key(KeyEvent::from(*key), |_| &tables), Act::Nothing, "{key:?}");
        frame = printed(view, &mut ui, width, height);
    }
    frame
}

fn check(name: &str, view: &View<'_>, size: (u16, u16), keys: &[KeyCode]) {
    golden::expect(&format!("tests/data/top/{name}.txt"), &frame(view, size, keys));
}

fn typed(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

const USUAL: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (200, 60);

#[test]
fn nodes_of_each_size_on_screens_of_each_size() {
    for pods in [0, 5, 300] {
        let data = data(pods);
        for (name, size) in [("80x24", USUAL), ("200x60", WIDE)] {
            check(&format!("{pods}-pods-{name}"), &view(Some(&data)), size, &[]);
        }
    }
}

/// The page shows a part of such a frame, with `...` for what is left out.
#[test]
fn the_page_on_commands_shows_a_real_frame() {
    let page = include_str!("../../../../docs/commands.md");
    let (_, rest) = page.split_once("```console\nnode-1  sandprobe").expect("an example");
    let (example, _) = rest.split_once("\n```").expect("its end");
    let data = data(5);
    let frame = frame(&view(Some(&data)), USUAL, &[]);
    let mut lines = frame.lines().map(str::trim_end);
    let example = format!("node-1  sandprobe{example}");
    for line in example.lines().filter(|line| *line != "...") {
        assert!(lines.any(|drawn| drawn == line), "{line:?} is not there, or not in this order:\n{frame}");
    }
}

/// With thousands of findings, making the tables takes longer than a held key waits.
#[test]
fn keys_that_change_no_row_make_no_table() {
    let data = data(300);
    let (mut ui, mut kept) = (Ui::default(), KeptTables::default());
    let place = |kept: &mut KeptTables, ui: &mut Ui, key: char| {
        let act = ui.key(KeyEvent::from(KeyCode::Char(key)), |query| kept.of(Some(&data), query));
        assert_eq!(act, Act::Nothing);
        kept.of(Some(&data), &ui.query)[0].rows.as_ptr()
    };
    let first = kept.of(Some(&data), &ui.query)[0].rows.as_ptr();
    for key in ['j', 'G', 'k', '2', 'z', '1'] {
        assert_eq!(place(&mut kept, &mut ui, key), first, "{key}");
    }
    let count = |kept: &mut KeptTables, data: &Data, ui: &Ui| kept.of(Some(data), &ui.query)[0].rows.len();
    let open = count(&mut kept, &data, &ui);
    place(&mut kept, &mut ui, 'a');
    assert!(count(&mut kept, &data, &ui) > open, "closed findings are rows too");
    // Keys that change the query are held, or pasted, too.
    let mut asked = Ui::default();
    for key in typed("ssaa/abc") {
        asked.key(KeyEvent::from(key), |_| unreachable!("{key:?} needs none"));
    }
    let many = count(&mut kept, &data, &ui);
    kept.forget();
    let few = self::data(0);
    assert!(count(&mut kept, &few, &ui) < many, "other data is shown");
}

#[test]
fn each_pane_has_the_whole_screen() {
    let data = data(300);
    for (pane, name) in ('1'..).zip(["findings", "starts", "pools", "signals"]) {
        let zoom = if pane == '1' { "1" } else { "44" }.replace('4', &pane.to_string());
        check(&format!("zoomed-{name}"), &view(Some(&data)), USUAL, &typed(&zoom));
    }
}

#[test]
fn each_row_is_explained() {
    let data = data(5);
    let open = |keys: &str| [typed(keys), vec![KeyCode::Down, KeyCode::Enter]].concat();
    for (name, keys) in [("finding", "1"), ("start", "2"), ("pool", "3"), ("signal", "4")] {
        check(&format!("explained-{name}"), &view(Some(&data)), USUAL, &open(keys));
    }
    let waiting = [typed("2"), vec![KeyCode::Enter]].concat();
    check("explained-waiting-pod", &view(Some(&data)), USUAL, &waiting);
    check("help", &view(Some(&data)), USUAL, &typed("?"));
}

#[test]
fn rows_are_filtered_sorted_and_closed_ones_added() {
    let data = data(300);
    let filter = [typed("/10.88.0.13"), vec![KeyCode::Enter]].concat();
    check("filtered", &view(Some(&data)), USUAL, &filter);
    check("filtered-away", &view(Some(&data)), USUAL, &typed("/nothing like it"));
    check("newest-with-closed", &view(Some(&data)), USUAL, &typed("as"));
    let (all, kept) = (frame(&view(Some(&data)), USUAL, &[]), [filter, vec![KeyCode::Esc]].concat());
    assert_eq!(frame(&view(Some(&data)), USUAL, &kept), all, "Esc takes the filter away");
}

#[test]
fn an_agent_that_is_away_leaves_its_data() {
    let data = data(5);
    let why =
        "no agent answers on /run/sandprobe/sandprobe.sock: start sandprobe run, or give --socket".to_owned();
    let away = Connection::Away { time: Duration::from_secs(83), why };
    let shown = View { connection: away, ..view(Some(&data)) };
    check("away-80x24", &shown, USUAL, &[]);
    check("away-40x10", &shown, (40, 10), &[]);
    let silent = View { connection: Connection::Silent(Duration::from_secs(4)), ..view(Some(&data)) };
    check("silent-80x24", &silent, USUAL, &[]);
    let nothing = frame(&view(None), USUAL, &[]);
    assert!(nothing.contains("waiting for the agent"), "{nothing}");
}

#[test]
fn no_size_is_too_small_to_say_so() {
    let data = data(5);
    for size in [(20, 5), (1, 1)] {
        check(&format!("small-{}x{}", size.0, size.1), &view(Some(&data)), size, &[]);
    }
    // Whatever is open, at any size, and while the size changes.
    for keys in ["", "?", "2", "22", "44", "/x"] {
        let mut ui = Ui::default();
        let view = view(Some(&data));
        for key in typed(keys).into_iter().chain([KeyCode::End, KeyCode::Enter, KeyCode::End]) {
            let tables = view.tables(&ui);
            ui.key(KeyEvent::from(key), |_| &tables);
        }
        let sizes = [0, 1, 2, 39, 40, 41, 79, 300]
            .into_iter()
            .flat_map(|width| (0..30).map(move |height| (width, height)));
        for (width, height) in sizes {
            let frame = printed(&view, &mut ui, width, height);
            assert_eq!(frame.lines().count(), usize::from(height));
        }
    }
}

#[test]
fn nothing_is_wrong_only_if_all_is_seen() {
    let seen = |signal: &Value| signal["mechanism"].is_string();
    let told = |are_seen: bool, losses: Value, reasons: Value| {
        let mut documents = node::documents(0);
        let (.., doctor) =
            documents.iter_mut().find(|(path, ..)| *path == "/v1/doctor").expect("it is asked");
        if are_seen {
            doctor["signals"].as_array_mut().expect("a list").retain(seen);
        }
        (doctor["agent"]["losses"], doctor["agent"]["reasons"]) = (losses, reasons);
        let data = answered(&documents);
        let tables = view(Some(&data)).tables(&Ui::default());
        tables[Pane::Findings.place()].empty.clone()
    };
    let (none, not_all) = (json!({}), "nothing was found, but not all can be seen: ");
    assert_eq!(told(true, none.clone(), json!([])), "nothing is wrong");
    assert_eq!(told(false, none.clone(), json!([])), format!("{not_all}listening not seen"));
    let lost = |n: &str| json!({ "lifecycle_ring": n });
    assert_eq!(told(true, lost("1"), json!([])), format!("{not_all}1 record lost"));
    assert_eq!(told(false, lost("3"), json!([])), format!("{not_all}listening not seen, 3 records lost"));
    assert_eq!(
        told(false, none, json!(["listening is not seen"])),
        format!("{not_all}listening is not seen")
    );
}

/// A pod's name is shown in letters, and does nothing.
#[test]
fn hostile_names_are_text() {
    let data = data(5);
    for keys in [vec![], typed("1"), [typed("/evil"), vec![KeyCode::Enter, KeyCode::Enter]].concat()] {
        let frame = frame(&view(Some(&data)), WIDE, &keys);
        assert!(frame.contains("evil\\u{1b}[2J\\u{202e}\\n"), "{frame}");
        assert!(frame.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{frame}");
    }
}

#[test]
fn the_selected_row_stays_selected_while_rows_move() {
    let (few, many) = (data(5), data(300));
    let mut ui = Ui::default();
    let draw = |data: &Data, ui: &mut Ui| printed(&view(Some(data)), ui, USUAL.0, USUAL.1);
    draw(&few, &mut ui);
    for _ in 0..5 {
        let tables = view(Some(&few)).tables(&ui);
        ui.key(KeyEvent::from(KeyCode::Down), |_| &tables);
        draw(&few, &mut ui);
    }
    let selected = |data: &Data, ui: &Ui| ui.selected(&view(Some(data)).tables(ui)).map(|row| row.id.clone());
    assert_eq!(selected(&few, &ui).as_deref(), Some("cni_failing/bridge"));
    let frame = draw(&many, &mut ui);
    assert_eq!(selected(&many, &ui).as_deref(), Some("cni_failing/bridge"));
    assert!(frame.contains("cni_failing  "), "it is scrolled to: {frame}");
    let none = data(0);
    draw(&none, &mut ui);
    assert_eq!(selected(&none, &ui), None);
}

#[test]
fn keys_ask_for_what_only_the_loop_can_do() {
    let data = data(5);
    let view = view(Some(&data));
    let tables = view.tables(&Ui::default());
    let mut ui = Ui::default();
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    let mut act = |key: KeyEvent| ui.key(key, |_| &tables);
    assert_eq!(act(KeyCode::Char('p').into()), Act::Pause);
    assert_eq!(act(KeyCode::Char('p').into()), Act::Refresh, "it goes on");
    assert_eq!(act(KeyCode::Char('r').into()), Act::Refresh);
    assert_eq!(act(control('l')), Act::Redraw);
    assert_eq!(act(control('z')), Act::Suspend);
    assert_eq!(act(KeyCode::Char('/').into()), Act::Nothing);
    assert_eq!(act(KeyCode::Char('q').into()), Act::Nothing, "it is part of the filter");
    assert_eq!(act(control('c')), Act::Leave, "whatever is open");
    assert_eq!(act(KeyCode::Esc.into()), Act::Nothing);
    assert_eq!(act(KeyCode::Enter.into()), Act::Nothing);
    assert_eq!(act(KeyCode::Char('q').into()), Act::Nothing, "it closes the explanation");
    assert_eq!(act(KeyCode::Char('q').into()), Act::Leave);
}

#[test]
fn colors_are_used_only_if_they_are_wanted() {
    let data = data(5);
    for color in [true, false] {
        let mut terminal = Terminal::new(TestBackend::new(USUAL.0, USUAL.1)).expect("a terminal");
        let view = View { theme: Theme { color }, ..view(Some(&data)) };
        let mut ui = Ui::default();
        let tables = view.tables(&ui);
        let drawn = terminal.draw(|frame| view.draw(&tables, &mut ui, frame.area(), frame.buffer_mut()));
        let cells = &drawn.expect("a frame").buffer.content;
        let is_colored = cells.iter().any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
        assert_eq!(is_colored, color);
    }
}

#[test]
fn rates_are_those_between_two_answers_of_one_run() {
    let earlier = data(5).doctor;
    let mut later = earlier.clone();
    later.boot_ns.0 += 2_000_000_000;
    later.agent.seq += 25;
    assert_eq!(later.rates(&earlier).map(|it| (it.events, it.lost)), Some((12.5, 0)));
    assert_eq!(earlier.rates(&earlier), None, "no time has passed");
    later.agent.instance = "other".to_owned();
    assert_eq!(later.rates(&earlier), None);
}

#[test]
fn what_goes_on_gets_older_without_a_new_state() {
    let mut data = data(5);
    data.doctor.boot_ns = data.doctor.boot_ns + Duration::from_secs(3);
    let frame = frame(&view(Some(&data)), USUAL, &[]);
    assert!(frame.contains("1m14s"), "the pod without a sandbox: {frame}");
    assert!(frame.contains("44.16 s"), "the image: {frame}");
}

/// An answer for a node with 300 pods and 10,000 findings is drawn in less time than passes between two,
/// whatever its order. The bounds are for a build without optimization on a slow machine that does much else.
#[test]
fn a_full_node_is_drawn_at_once() {
    let mut data = data(300);
    let findings = &mut Arc::get_mut(&mut data.state).expect("nobody else has it").snapshot.findings;
    let is_of_report =
        |it: &&Finding| it.pod.as_ref().is_some_and(|pod| pod.name.as_deref() == Some("report"));
    let incident: Vec<Finding> = findings.iter().filter(is_of_report).cloned().collect();
    assert_eq!(incident.len(), 3, "effects below their causes");
    for n in 0_u64.. {
        if findings.len() >= 10_000 {
            break;
        }
        findings.extend(incident.iter().cloned().map(|it| Finding {
            key: Key::parse(&format!("{}/{n}", it.key)).expect("a key"),
            since: Timestamp(it.since.0 - n),
            sandboxes: ContainerId::parse(&format!("{n:064x}")).into_iter().collect(),
            ..it
        }));
    }
    let view = view(Some(&data));
    for presses in 0..Pane::Findings.orders().len() {
        let begun = worked();
        let shown = frame(&view, WIDE, &vec![KeyCode::Char('s'); presses]);
        assert!(shown.contains(" of 10001"), "{shown}");
        // Each key is drawn twice: the rows are made for the key and for the frame.
        let frames = u32::try_from(1 + 2 * presses).expect("few");
        let took = worked() - begun;
        assert!(took / frames < Duration::from_secs(2), "{presses}: {took:?}");
    }
}

/// How long this thread has worked, whatever else the machine does.
fn worked() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
}

/// This test is started a second time, in a terminal, to panic there.
#[test]
fn a_panic_is_printed_on_a_terminal_that_was_given_back() {
    const MARK: &str = "SANDPROBE_TEST_PANICS";
    if std::env::var_os(MARK).is_some() {
        let _screen = super::screen::Screen::enter().expect("a terminal");
        panic!("as it must");
    }
    let own = std::env::current_exe().expect("this program");
    let name = "cli::top::tests::a_panic_is_printed_on_a_terminal_that_was_given_back";
    let arguments = ["--exact", name, "--nocapture"];
    let mut pty = Pty::start(own.to_str().expect("a path"), &arguments, &[(MARK, "1")]);
    assert_eq!(pty.ended_and_given_back(), Some(101));
    let told = String::from_utf8_lossy(&pty.bytes);
    let (_, after) = told.split_once("\x1b[?1049l").expect("it leaves the other screen");
    assert!(after.contains("as it must"), "{told}");
}
