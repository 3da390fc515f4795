//! Compares `sandprobe boot` with the node's own kubelet and with the first output of each pod's program.
//! Only for a VM that reboots, in the order of `cargo xtask test`. Each boot's test checks that boot, and
//! leaves on the disk what the next one needs.

mod row;

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use probe_common::runtime::CNI_CACHE;
use serde_json::Value;
use tests::{
    clock, command,
    edge::{self, Report},
    machine,
};

use row::{Agent, Row};

/// A file on the disk with the wall-clock time at which the boot's test ended.
const ENDED: &str = "/root/ended";
const RECORDINGS: &str = "/var/lib/recordings";
const HISTORY: &str = "/var/lib/sandprobe/boots.jsonl";

/// Returns the kubelet's report. Waits until it has started all its pods.
fn report() -> Result<Report> {
    // Where each program starts slowly, so many programs take minutes.
    clock::poll("all pods", 2 * machine::patience(), Report::read)
}

fn boot_text(arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("sandprobe").arg("boot").args(arguments).output().context("run sandprobe boot")?;
    let (text, why) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(
        output.status.success(),
        "sandprobe boot {arguments:?} ended with {}: {why}\n{text}",
        output.status
    );
    Ok(text)
}

fn lines(arguments: &[&str]) -> Result<Vec<Value>> {
    let boot_text = boot_text(arguments)?;
    boot_text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Returns all boots, one row each, when the last row is as wanted.
fn rows(what: &str, wanted: impl Fn(&Row) -> bool) -> Result<Vec<Row>> {
    let rows =
        || -> Result<Vec<Row>> { Ok(lines(&["-o", "json"])?.into_iter().filter_map(Row::of).collect()) };
    clock::poll(what, machine::patience(), || {
        let rows = rows()?;
        Ok(rows.last().is_some_and(&wanted).then_some(rows))
    })
    .or_else(|error| Err(error.context(boot_text(&["-v"])?)))
}

fn wall_ns() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

/// The last step of each boot's test.
#[expect(clippy::print_stdout, reason = "the test prints what it measured")]
fn leave() -> Result<()> {
    println!("{}", boot_text(&["-v"])?);
    let end = || -> Result<()> {
        let mut file = File::create(ENDED)?;
        file.write_all(wall_ns()?.to_string().as_bytes())?;
        // The power may be cut next.
        Ok(file.sync_all()?)
    };
    end().with_context(|| format!("write {ENDED}"))
}

fn left() -> Result<i64> {
    fs::read_to_string(ENDED).with_context(|| format!("read {ENDED}"))?.parse().context("a time")
}

/// Returns the row of this boot when all pods of the boot before are back.
fn recovered(agent: Agent) -> Result<Row> {
    let report = report()?;
    // Until the agent has recorded this boot, `sandprobe boot` calculates one itself.
    clock::poll("the agent's own record of this boot", machine::patience(), || {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot's id")?;
        let history = fs::read_to_string(HISTORY).with_context(|| format!("read {HISTORY}"))?;
        Ok(history.contains(&format!("\"boot_id\":\"{}\",\"kernel\"", id.trim())).then_some(()))
    })?;
    // A late agent reads one list after the other. The network's leftovers come last.
    let is_whole = |row: &Row| row.is_complete() && (agent == Agent::Early || row.is_listed());
    let row = rows("the last of the pods", is_whole)?.pop().context("no boot")?;
    row.ensure_true(&report, agent)?;
    Ok(row)
}

/// Checks the mean and the difference of the ordered reboots, in JSON and in the table.
fn ensure_average(ordered: usize) -> Result<()> {
    let rows: Vec<Row> = rows("the rows", |_| true)?.into_iter().filter(Row::is_ordered).collect();
    ensure!(rows.len() == ordered, "{} boots were ordered", rows.len());
    let output = lines(&["-o", "json"])?;
    let average = output.iter().find_map(|line| line.get("average")).context("no average")?;
    ensure!(average["boots"] == ordered, "{average:#}");
    let n = i64::try_from(ordered)?;
    let means = row::COLUMNS.map(|column| -> Result<i64> {
        let values = rows.iter().map(|row| row.column(column)).collect::<Result<Vec<i64>>>()?;
        // Rounded to the nearest integer.
        Ok((values.iter().sum::<i64>() + n / 2) / n)
    });
    let means = means.into_iter().collect::<Result<Vec<i64>>>()?;
    let mut before = 0;
    let table = boot_text(&[])?;
    let line = |begin: &str| -> Result<Vec<String>> {
        let found = table.lines().find_map(|line| line.strip_prefix(begin));
        Ok(found
            .with_context(|| format!("no {begin:?} in\n{table}"))?
            .split_whitespace()
            .map(str::to_owned)
            .collect())
    };
    let (mean_line, difference_line) = (line(&format!("Avg of {ordered}"))?, line("Diff")?);
    for (n, mean) in means.into_iter().enumerate() {
        let (column, period) = (row::COLUMNS[n], row::PERIODS[n]);
        ensure!(row::number(&average["columns"][column])? == mean, "{column} is {mean}: {average:#}");
        let difference = mean - before;
        ensure!(
            row::number(&average["periods"][period])? == difference,
            "{period} is {difference}: {average:#}"
        );
        // The table has a mark at each number that is not exact.
        let in_ms = |ns: i64, name: &str| {
            let is_inexact = average["inexact"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
            format!("{}{}", if is_inexact { "~" } else { "" }, (ns + 500_000) / 1_000_000)
        };
        let is_shown = mean_line[n] == in_ms(mean, column) && difference_line[n] == in_ms(difference, period);
        ensure!(is_shown, "{column}:\n{table}");
        before = mean;
    }
    Ok(())
}

/// Checks the boot by the other rule: a service pod is back when it listens.
fn ensure_listening() -> Result<()> {
    let report = report()?;
    let row = clock::poll("all listen", machine::patience(), || {
        let all = lines(&["-o", "json", "--boot-recovered", "listening"])?;
        let row = all.into_iter().filter_map(Row::of).next_back();
        Ok(row.filter(|row| row.listening() == report.services().count()))
    })?;
    row.ensure_listening(&report)
}

/// Checks that the table's last line marks each number, and that its boot has a note about what was not seen.
fn ensure_marked(row: &Row) -> Result<()> {
    let text = boot_text(&[])?;
    let line = text.lines().take_while(|line| !line.starts_with("Avg")).last().context("no table")?;
    let numbers: Vec<&str> = line.split_whitespace().skip(3).collect();
    ensure!(numbers.len() == 9 && numbers.iter().all(|number| number.starts_with('~')), "{line}");
    let (_, notes) = text.rsplit_once(row.boot_id()).context("the boot has no notes")?;
    ensure!(notes.contains("was not seen before the agent began to look "), "{text}");
    Ok(())
}

/// Returns the recordings of the boots in the order of the history.
fn recordings(rows: &[Row]) -> Vec<PathBuf> {
    let all = rows
        .iter()
        .map(|row| Path::new(RECORDINGS).join(format!("{}.jsonl", row.boot_id().replace('-', ""))));
    all.filter(|file| file.exists()).collect()
}

#[test]
fn a_node_is_made() -> Result<()> {
    edge::install()?;
    let report = report()?;
    let all = |row: &Row| row.pods().len() == report.pods.len();
    let row = rows("all pods", all)?.pop().context("no boot")?;
    // No boot before is known, and this one did not begin with an order to reboot.
    ensure!(!row.is_ordered(), "{row:#?}");
    leave()
}

#[test]
fn a_restart_is_timed() -> Result<()> {
    let row = recovered(Agent::Early)?;
    row.ensure_ordered_since(left()?)?;
    ensure_listening()?;
    leave()
}

#[test]
fn a_second_one_is_compared() -> Result<()> {
    let row = recovered(Agent::Early)?;
    row.ensure_ordered_since(left()?)?;
    ensure_average(2)?;
    leave()
}

/// The recordings of the earlier boots stay, and the power cut ended this one's.
#[test]
fn a_power_cut_is_reported() -> Result<()> {
    let row = recovered(Agent::Early)?;
    row.ensure_cut_after(left()?)?;
    let text = boot_text(&[])?;
    ensure!(text.contains("order not seen (last heartbeat "), "{text}");
    // The earlier boots are unchanged.
    ensure_average(2)?;
    let history = fs::read_to_string(HISTORY)?;
    ensure!(
        history.ends_with('\n') && history.lines().all(|line| line.starts_with("{\"sum\":\"")),
        "{history}"
    );
    leave()
}

#[test]
fn recordings_say_the_same() -> Result<()> {
    let mut rows = rows("the rows", |_| true)?;
    // The recording of this boot is still being written.
    rows.pop();
    let files = recordings(&rows);
    ensure!(files.len() == rows.len() && rows.len() >= 3, "{files:?}");
    let last = files.last().cloned().context("no recording")?;
    let whole: Vec<&str> =
        files.iter().filter(|file| **file != last).filter_map(|file| file.to_str()).collect();
    let replayed = lines(&[&["-o", "json", "--replay"], whole.as_slice()].concat())?;
    let replayed: Vec<Row> = replayed.into_iter().filter_map(Row::of).collect();
    ensure!(replayed.len() == whole.len(), "{} recordings gave {} boots", whole.len(), replayed.len());
    for (row, replayed) in rows.iter().zip(&replayed) {
        row.ensure_same(replayed)?;
    }
    Ok(())
}

/// A service saw the order of this boot, and a pod reports the boot.
#[test]
fn the_agent_moves_into_a_pod() -> Result<()> {
    edge::move_agent_into_a_pod()?;
    leave()
}

#[test]
fn a_late_agent_goes_on() -> Result<()> {
    let row = recovered(Agent::Late)?;
    row.ensure_ordered_since(left()?)?;
    ensure_marked(&row)?;
    ensure_average(3)?;
    leave()
}

/// The pod saw the order, and the next pod reports the boot.
#[test]
fn a_second_late_one_is_compared() -> Result<()> {
    let row = recovered(Agent::Late)?;
    row.ensure_ordered_since(left()?)?;
    ensure_marked(&row)?;
    ensure_average(4)?;
    edge::disable_kubelet()?;
    leave()
}

/// Only the journal sees this boot, and it leaves a file of libcni empty, as a power loss does.
#[test]
fn a_boot_is_seen_by_no_agent() -> Result<()> {
    let torn = Path::new(CNI_CACHE).join(format!("cbr0-{}-eth0", "0123".repeat(16)));
    let leave = || File::create(&torn)?.sync_all();
    leave().with_context(|| format!("leave {} empty", torn.display()))?;
    fs::create_dir_all("/var/log/journal").context("make the journal's folder")?;
    command::run("systemctl", &["start", "systemd-journald.service"])?;
    command::run("journalctl", &["--flush"])?;
    command::run("journalctl", &["--sync"])
}

#[test]
fn a_boot_in_between_is_reported() -> Result<()> {
    let row = rows("the rows", |_| true)?.pop().context("no boot")?;
    row.ensure_unseen(1)?;
    let text = boot_text(&[])?;
    ensure!(text.contains("\n1 boot not seen "), "{text}");
    ensure_average(4)
}
