//! What `sandprobe boot` says of a node's restarts, held against the node's own kubelet and the first words of each
//! pod's program. For a VM that boots again alone, in the order that `cargo xtask test` says: each boot's test looks at
//! that boot, and leaves on the disk what the next one's needs.

mod row;

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock, command,
    edge::{self, Report},
    machine,
};

use row::{Agent, Row};

/// On the disk: the wall clock when the boot's test ended.
const ENDED: &str = "/root/ended";
const RECORDINGS: &str = "/var/lib/recordings";
const HISTORY: &str = "/var/lib/sandprobe/boots.jsonl";

/// The node's kubelet has started all its pods.
fn report() -> Result<Report> {
    // So many programs take minutes to start where each takes long.
    clock::poll("all pods", 2 * machine::patience(), Report::read)
}

fn told(arguments: &[&str]) -> Result<String> {
    let said =
        Command::new("sandprobe").arg("boot").args(arguments).output().context("run sandprobe boot")?;
    let (text, why) = (String::from_utf8(said.stdout)?, String::from_utf8_lossy(&said.stderr));
    ensure!(said.status.success(), "sandprobe boot {arguments:?} ended with {}: {why}\n{text}", said.status);
    Ok(text)
}

fn lines(arguments: &[&str]) -> Result<Vec<Value>> {
    let told = told(arguments)?;
    told.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// All boots, each as one line has it, when the last of them is as wanted.
fn rows(what: &str, wanted: impl Fn(&Row) -> bool) -> Result<Vec<Row>> {
    let rows =
        || -> Result<Vec<Row>> { Ok(lines(&["-o", "json"])?.into_iter().filter_map(Row::of).collect()) };
    clock::poll(what, machine::patience(), || {
        let rows = rows()?;
        Ok(rows.last().is_some_and(&wanted).then_some(rows))
    })
    .or_else(|error| Err(error.context(told(&["-v"])?)))
}

fn wall_ns() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

/// The last thing that a boot's test does.
#[expect(clippy::print_stdout, reason = "what was measured is for whoever reads the run")]
fn leave() -> Result<()> {
    println!("{}", told(&["-v"])?);
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

/// The boot as it is when all are back that were there before.
fn recovered(agent: Agent) -> Result<Row> {
    let report = report()?;
    // Without its agent `sandprobe boot` would tell of a boot by itself.
    clock::poll("the agent's own record of this boot", machine::patience(), || {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot's id")?;
        let history = fs::read_to_string(HISTORY).with_context(|| format!("read {HISTORY}"))?;
        Ok(history.contains(&format!("\"boot_id\":\"{}\",\"kernel\"", id.trim())).then_some(()))
    })?;
    // A late agent lists one thing after the other: what the network left comes last.
    let is_whole = |row: &Row| row.is_complete() && (agent == Agent::Early || row.is_listed());
    let row = rows("the last of the pods", is_whole)?.pop().context("no boot")?;
    row.ensure_true(&report, agent)?;
    Ok(row)
}

/// The mean and the difference of the boots that were ordered, in JSON and in the table.
fn ensure_average(ordered: usize) -> Result<()> {
    let rows: Vec<Row> = rows("the rows", |_| true)?.into_iter().filter(Row::is_ordered).collect();
    ensure!(rows.len() == ordered, "{} boots were ordered", rows.len());
    let said = lines(&["-o", "json"])?;
    let average = said.last().map(|line| &line["average"]).context("no average")?;
    ensure!(average["boots"] == ordered, "{average:#}");
    let n = i64::try_from(ordered)?;
    let means = row::COLUMNS.map(|column| -> Result<i64> {
        let values = rows.iter().map(|row| row.column(column)).collect::<Result<Vec<i64>>>()?;
        // Rounded to the nearest.
        Ok((values.iter().sum::<i64>() + n / 2) / n)
    });
    let means = means.into_iter().collect::<Result<Vec<i64>>>()?;
    let mut before = 0;
    let table = told(&[])?;
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
        // As they stand in the table: one that is not exact has its mark there too.
        let in_ms = |ns: i64, name: &str| {
            let is_inexact = average["inexact"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
            format!("{}{}", if is_inexact { "~" } else { "" }, (ns + 500_000) / 1_000_000)
        };
        let is_told = mean_line[n] == in_ms(mean, column) && difference_line[n] == in_ms(difference, period);
        ensure!(is_told, "{column}:\n{table}");
        before = mean;
    }
    Ok(())
}

/// The boot by the other rule: a service pod is back when it listens.
fn ensure_listening() -> Result<()> {
    let report = report()?;
    let row = clock::poll("all listen", machine::patience(), || {
        let all = lines(&["-o", "json", "--boot-recovered", "listening"])?;
        let row = all.into_iter().filter_map(Row::of).next_back();
        Ok(row.filter(|row| row.listening() == report.services().count()))
    })?;
    row.ensure_listening(&report)
}

/// The last line of the table has a mark at each number, and its boot a word on what was not seen.
fn ensure_marked(row: &Row) -> Result<()> {
    let text = told(&[])?;
    let line = text.lines().take_while(|line| !line.starts_with("Avg")).last().context("no table")?;
    let numbers: Vec<&str> = line.split_whitespace().skip(3).collect();
    ensure!(numbers.len() == 9 && numbers.iter().all(|number| number.starts_with('~')), "{line}");
    let (_, notes) = text.rsplit_once(row.boot_id()).context("the boot has no notes")?;
    ensure!(notes.contains("was not seen before the agent began to look "), "{text}");
    Ok(())
}

/// The recordings of boots in the order of the history.
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
    // Nobody knows of a boot before, and this one has not shown the node's own way.
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

/// Those boots' recordings, and this one's that was cut off with the power.
#[test]
fn a_power_cut_is_told() -> Result<()> {
    let row = recovered(Agent::Early)?;
    row.ensure_cut_after(left()?)?;
    let text = told(&[])?;
    ensure!(text.contains("order not seen (last heartbeat "), "{text}");
    // What came before is as it was.
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
    // This boot's is not at its end.
    rows.pop();
    let files = recordings(&rows);
    ensure!(files.len() == rows.len() && rows.len() >= 3, "{files:?}");
    let last = files.last().cloned().context("no recording")?;
    let whole: Vec<&str> =
        files.iter().filter(|file| **file != last).filter_map(|file| file.to_str()).collect();
    let replayed = lines(&[&["-o", "json", "--replay"], whole.as_slice()].concat())?;
    let replayed: Vec<Row> = replayed.into_iter().filter_map(Row::of).collect();
    ensure!(replayed.len() == whole.len(), "of {} recordings came {} boots", whole.len(), replayed.len());
    for (row, replayed) in rows.iter().zip(&replayed) {
        row.ensure_same(replayed)?;
    }
    Ok(())
}

/// Its order was seen by a service, and the boot is told of by a pod.
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

/// The pod has seen the order, and the next one tells of the boot.
#[test]
fn a_second_late_one_is_compared() -> Result<()> {
    let row = recovered(Agent::Late)?;
    row.ensure_ordered_since(left()?)?;
    ensure_marked(&row)?;
    ensure_average(4)?;
    edge::disable_kubelet()?;
    leave()
}

/// Nobody is there but the journal.
#[test]
fn a_boot_is_seen_by_no_agent() -> Result<()> {
    fs::create_dir_all("/var/log/journal").context("make the journal's folder")?;
    command::run("systemctl", &["start", "systemd-journald.service"])?;
    command::run("journalctl", &["--flush"])?;
    command::run("journalctl", &["--sync"])
}

#[test]
fn a_boot_in_between_is_told() -> Result<()> {
    let row = rows("the rows", |_| true)?.pop().context("no boot")?;
    row.ensure_unseen(1)?;
    let text = told(&[])?;
    ensure!(text.contains("\n1 boot not seen "), "{text}");
    ensure_average(4)
}
