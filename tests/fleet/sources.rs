//! The allowed sources of an export, their rows, and the messages about a source without rows.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    thread,
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use tempfile::TempDir;

use super::{
    export, recorded, recording, refused, said, sandprobe,
    server::{Server, USER},
};

/// Returns the files of a folder of tables, by table and day.
fn written(folder: &Path) -> BTreeMap<(String, String), Vec<u8>> {
    let mut found = BTreeMap::new();
    for table in fs::read_dir(folder).expect("tables").map(|table| table.expect("a table").path()) {
        for day in fs::read_dir(&table).expect("a table") {
            let day = day.expect("a day").path();
            let file = fs::read_dir(&day).expect("files").next().expect("a file").expect("a file").path();
            let date = day.file_name().expect("a name").to_string_lossy().into_owned();
            let name = table.file_name().expect("a name").to_string_lossy().into_owned();
            found.insert((name, date), fs::read(file).expect("a file"));
        }
    }
    found
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (written(one), written(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (file, bytes) in &one {
        assert!(other[file] == *bytes, "{file:?} differs");
    }
}

/// Returns the output of an export that leaves something out.
#[track_caller]
fn incomplete(files: &[PathBuf], folder: &Path) -> (String, String) {
    let Output { status, stdout, stderr } = export(files, folder).output().expect("it starts");
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).expect("text"));
    assert_eq!(status.code(), Some(1), "{stderr}");
    (stdout, stderr)
}

#[test]
fn a_recording_and_the_log_of_the_same_run_give_the_same_rows() {
    let place = TempDir::new().expect("a folder");
    let (events, _) = recorded();
    let boots = said(sandprobe().args(["boot", "-o", "json", "--replay"]).arg(recording("demo.jsonl")));
    let [log, boot, of_recording, of_log] =
        ["events.jsonl", "boots.jsonl", "recording", "log"].map(|name| place.path().join(name));
    fs::write(&log, events).expect("a file");
    fs::write(&boot, boots).expect("a file");
    said(&mut export(&[recording("demo.jsonl")], &of_recording));
    said(&mut export(&[log, boot], &of_log));
    assert!(written(&of_recording).len() >= 4, "{:?}", written(&of_recording).keys());
    assert_same(&of_recording, &of_log);
}

/// Lines of daemons' restarts come alone, or after the lines of boots.
#[test]
fn the_restarts_of_a_recording_are_those_that_boot_tells() {
    let place = TempDir::new().expect("a folder");
    let file = recording("boots/runtime-restart.jsonl");
    let told =
        |what: &[&str]| said(sandprobe().args(["boot", "-o", "json"]).args(what).arg("--replay").arg(&file));
    let (boots, restarts) = (told(&[]), told(&["--restarts"]));
    let [alone, both, of_recording, of_alone, of_both] =
        ["restarts", "both", "recording", "alone", "of-both"].map(|name| place.path().join(name));
    fs::write(&alone, &restarts).expect("a file");
    fs::write(&both, boots + &restarts).expect("a file");
    let table = |told: &str| told.split(" of ").next().map(str::to_owned);
    assert_eq!(table(&said(&mut export(&[alone], &of_alone))).as_deref(), Some("2 restarts"));
    assert_eq!(table(&said(&mut export(&[both], &of_both))).as_deref(), Some("1 boots, 2 restarts"));
    said(&mut export(&[file], &of_recording));
    let rows = |folder: &Path| {
        let mut rows = written(folder);
        rows.retain(|(table, date), _| table == "restarts" && date != "date=1970-01-01");
        rows.into_values().collect::<Vec<_>>()
    };
    assert_eq!((rows(&of_recording).len(), rows(&of_recording)), (1, rows(&of_both)));
    // Boots have facts about the node that restarts do not have.
    assert_ne!(rows(&of_alone), rows(&of_both));
}

/// Such as `<(zcat log.gz)`. A second opening of a pipe would continue where the first one stopped reading.
#[test]
fn a_pipe_gives_all_rows_of_a_log_and_of_a_recording() {
    let place = TempDir::new().expect("a folder");
    let (events, _) = recorded();
    let log = place.path().join("events.jsonl");
    fs::write(&log, events).expect("a file");
    for (file, name) in [(log, "log"), (recording("demo.jsonl"), "recording")] {
        let [pipe, of_pipe, of_file] =
            ["pipe", "of-pipe", "of-file"].map(|what| place.path().join(format!("{name}-{what}")));
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        let (from, to) = (file.clone(), pipe.clone());
        let writer = thread::spawn(move || fs::write(to, fs::read(from).expect("a file")));
        said(&mut export(&[pipe], &of_pipe));
        writer.join().expect("it ends").expect("all is read");
        said(&mut export(&[file], &of_file));
        assert_same(&of_pipe, &of_file);
    }
}

#[test]
fn an_empty_file_and_one_whose_head_is_cut_off_do_not_stop_the_others() {
    let place = TempDir::new().expect("a folder");
    let (events, boot) = recorded();
    let [empty, log, boots] = ["empty", "log", "boots"].map(|name| place.path().join(name));
    fs::write(&empty, "").expect("a file");
    let (_, tail) = events.split_at(100);
    fs::write(&log, tail).expect("a file");
    fs::write(&boots, format!("{}\n{boot}\n{}", &boot[50..], &boot[..50])).expect("a file");
    let folder = place.path().join("tables");
    let (stdout, stderr) = incomplete(&[empty.clone(), log, boots], &folder);
    let count = events.lines().count() - 1;
    assert!(
        stdout.starts_with(&format!("1 boots, {count} events, 3 findings, 5 starts of 3 sources")),
        "{stdout}"
    );
    let told: Vec<&str> = stderr.lines().collect();
    assert!(
        matches!(told[..], [log, boots] if log.contains("log: one line was left out: line 1: ")
            && boots.contains("boots: 2 lines were left out, first line 1: ")),
        "{stderr}"
    );
    let told = said(&mut export(&[empty], &folder));
    assert!(told.starts_with("nothing of 1 source"), "{told}");
}

/// Otherwise the files of one log would silently replace the files of the other.
#[test]
fn logs_that_begin_alike_lose_nothing() {
    let place = TempDir::new().expect("a folder");
    let (events, _) = recorded();
    let [log, copy, tables, one, other] =
        ["log", "copy", "tables", "one", "other"].map(|name| place.path().join(name));
    fs::write(&log, &events).expect("a file");
    let begin = events.lines().next().expect("an event");
    fs::write(&copy, format!("{begin}\n")).expect("a file");
    let told = refused(&mut export(&[log, copy], &tables));
    assert!(told.contains("copy begin with the same line") && !tables.exists(), "{told}");
    // Lines that are not events, as a shell may have put before them, do not distinguish logs.
    let half = events.lines().count() / 2;
    let lines = |lines: Vec<&str>| format!("sandprobe watch -o json\n{}\n", lines.join("\n"));
    fs::write(&one, lines(events.lines().take(half).collect())).expect("a file");
    fs::write(&other, lines(events.lines().skip(half).collect())).expect("a file");
    let (stdout, _) = incomplete(&[one, other], &tables);
    let days = fs::read_dir(tables.join("events")).expect("days").map(|day| day.expect("a day").path());
    let files = days.flat_map(|day| fs::read_dir(day).expect("files")).count();
    // One file of each log, and the one without rows.
    assert_eq!(files, 3, "{stdout}");
}

/// Files are identified first and read later.
#[test]
fn a_log_that_is_rotated_meanwhile_is_not_taken_for_the_new_one() {
    let (events, boot) = recorded();
    let new = events.lines().last().expect("an event");
    let rotations: [fn(&Path, &str); 3] = [
        |log, new| {
            fs::rename(log, log.with_extension("1")).expect("renamed");
            fs::write(log, new).expect("a file");
        },
        // logrotate's `copytruncate` keeps the file. A new file may have the inode number of a removed one.
        |log, new| fs::write(log, new).expect("a file"),
        |log, _| fs::remove_file(log).expect("removed"),
    ];
    for rotate in rotations {
        let place = TempDir::new().expect("a folder");
        let [log, pipe, tables] = ["log", "pipe", "tables"].map(|name| place.path().join(name));
        fs::write(&log, &events).expect("a file");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        let files = [log.clone(), pipe.clone()];
        let (stdout, stderr) = thread::scope(|scope| {
            scope.spawn(|| {
                // This returns when the export opens the pipe too. By then it has identified the log.
                let mut pipe = fs::File::options().write(true).open(&pipe).expect("the pipe");
                rotate(&log, new);
                writeln!(pipe, "{boot}").expect("it is read");
            });
            incomplete(&files, &tables)
        });
        assert!(stdout.starts_with("1 boots of 2 sources"), "{stdout}");
        assert!(
            stderr.contains("log: it was replaced or removed meanwhile") && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
}

/// Otherwise a user could not tell a waiting export from a working one.
#[test]
fn a_pipe_that_nobody_writes_to_is_named_and_waited_for() {
    let place = TempDir::new().expect("a folder");
    let [pipe, tables] = ["pipe", "tables"].map(|name| place.path().join(name));
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let mut command = export(std::slice::from_ref(&pipe), &tables);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    BufReader::new(run.stderr.take().expect("piped")).read_line(&mut said).expect("text");
    let named = format!("sandprobe: {} is a pipe that nobody writes to yet: ", pipe.display());
    assert!(said.starts_with(&named), "{said}");
    let (_, boot) = recorded();
    fs::write(&pipe, format!("{boot}\n")).expect("it is read");
    let Output { status, stdout, .. } = run.wait_with_output().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(stdout.starts_with(b"1 boots of 1 source"), "{}", String::from_utf8_lossy(&stdout));
}

/// A file that is not a log may have a very long first line.
#[test]
fn a_file_with_no_line_that_tells_what_it_has_is_refused_early() {
    let place = TempDir::new().expect("a folder");
    let huge = place.path().join("huge");
    fs::File::create(&huge).and_then(|file| file.set_len(16 << 30)).expect("a sparse file");
    let told = refused(&mut export(&[huge], &place.path().join("tables")));
    assert!(told.contains("huge: its first lines are none of a recording"), "{told}");
}

#[test]
fn of_a_recording_that_is_cut_off_what_is_there_is_exported() {
    let place = TempDir::new().expect("a folder");
    let text = fs::read_to_string(recording("demo.jsonl")).expect("the recording");
    let cut = place.path().join("cut.jsonl");
    fs::write(&cut, &text[..text.len() - 40]).expect("a file");
    let (stdout, stderr) = incomplete(&[cut], &place.path().join("tables"));
    assert!(stdout.starts_with("1 boots, "), "{stdout}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// Returns the URL of a server that gives this answer to everything, and closes the connection.
fn answering(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // The thread ends with the test.
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut reader = BufReader::new(&stream);
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            stream.write_all(answer.as_bytes()).expect("it listens");
        }
    });
    url
}

/// A server that is not ClickHouse, or one that does not end its answer, has taken no rows.
#[test]
fn what_is_no_clickhouse_has_taken_nothing() {
    let place = TempDir::new().expect("a folder");
    let answer = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let long = format!("Code: 60. DB::Exception: \u{1b}[31m{}\n", "x".repeat(2000));
    let cut = answer("200 OK", "").replace("Length: 0", "Length: 9");
    for (answer, wanted) in [
        (
            answer("200 OK", "\n<html>sign in</html>\n"),
            "it answers \"<html>sign in</html>\", so it is not ClickHouse",
        ),
        (answer("301 Moved Permanently", ""), "it answers 301 Moved Permanently"),
        (
            answer("500 Internal Server Error", &long),
            "it answers 500: Code: 60. DB::Exception: \\u{1b}[31mxxx",
        ),
        (cut, "its answer cannot be read: "),
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "it does not answer in HTTP: "),
        (String::new(), "it does not answer in HTTP: "),
    ] {
        let url = answering(answer);
        let log = [recording("demo.jsonl")];
        let told = refused(export(&log, place.path()).args(["--clickhouse", &url]));
        let begin = format!("sandprobe: cannot make the tables in {url}: {wanted}");
        assert!(told.starts_with(&begin) && told.len() < 700, "{told}");
    }
}

#[test]
fn what_cannot_be_exported_is_told_in_a_line() {
    let place = TempDir::new().expect("a folder");
    let server = Server::start(&place.path().join("requests"));
    let folder = place.path().join("tables");
    let demo = [recording("demo.jsonl")];
    let export = || export(&demo, &folder);
    let told = refused(
        export()
            .args(["--clickhouse", &server.url, "--clickhouse-user", USER])
            .env("CLICKHOUSE_PASSWORD", "a secret"),
    );
    assert!(told.contains("cannot make the tables in http://127.0.0.1:"), "{told}");
    assert!(told.contains("it answers 403: Code: 516") && !told.contains("a secret"), "{told}");
    let told = refused(export().args(["--clickhouse", "http://127.0.0.1:1"]));
    assert!(told.contains("it is not reached") && told.contains("Connection refused"), "{told}");
    let told = refused(export().args(["--clickhouse", "http://fleet:secret@127.0.0.1:1"]));
    assert!(told.contains("see --clickhouse-user") && !told.contains("secret"), "{told}");
    for parameter in ["password=secret", "pass%77ord=secret", "database=fleet&USER=secret", "query=secret"] {
        let url = format!("{}&{parameter}", server.url);
        let told = refused(export().args(["--clickhouse", &url]));
        assert!(told.contains("see --clickhouse-user") && !told.contains("secret"), "{told}");
    }
    let told = refused(export().args(["--clickhouse", "clickhouse:9000/secret"]));
    assert!(told.contains("not a URL of ClickHouse") && !told.contains("secret"), "{told}");
    let told = refused(export().args(["--clickhouse", "http://127.0.0.1:81230"]));
    assert!(told.contains("not a URL of ClickHouse"), "{told}");
    for (file, why) in [("/dev/zero", "characters that no header has"), ("/dev/null", "is empty")] {
        let flags = ["--clickhouse", &server.url, "--clickhouse-password-file", file];
        let told = refused(export().args(flags));
        assert!(told.contains("the password") && told.contains(why), "{told}");
    }
    let told = refused(sandprobe().arg("export").args(&demo));
    assert!(told.contains("give --parquet DIR or --clickhouse URL"), "{told}");
    let told = refused(export().args(&demo));
    assert!(told.contains("is given twice"), "{told}");
    let other = place.path().join("other");
    fs::write(&other, "{\"level\":\"info\"}\n").expect("a file");
    let told = refused(export().arg(&other));
    assert!(told.contains("its first lines are none of a recording"), "{told}");
    for magic in [&b"\x1f\x8b\x08"[..], b"\x28\xb5\x2f\xfd"] {
        fs::write(&other, magic).expect("a file");
        let told = refused(export().arg(&other));
        assert!(told.contains("other is compressed: give it as <(zcat FILE)"), "{told}");
    }
    // None of these has written anything.
    assert!(!folder.exists());

    // A line that is not an event is left out and reported, and the rest is exported.
    let (mut events, _) = recorded();
    events.push_str("{\"schema\":1,");
    let cut = place.path().join("cut.jsonl");
    fs::write(&cut, &events).expect("a file");
    let (stdout, told) = incomplete(&[cut], &folder);
    assert!(
        told.contains("one line was left out: line ") && told.contains("not JSON from sandprobe"),
        "{told}"
    );
    let count = events.lines().count() - 1;
    assert!(stdout.starts_with(&format!("{count} events, 3 findings, 5 starts of 1 source")), "{stdout}");
}
