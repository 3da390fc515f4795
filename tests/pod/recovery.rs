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
    clock,
    edge::{self, Report},
    machine,
};

use row::Row;

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
fn recovered() -> Result<(Row, Report)> {
    let report = report()?;
    let row = rows("the last of the pods", Row::is_complete)?.pop().context("no boot")?;
    row.ensure_true(&report)?;
    Ok((row, report))
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
        let in_ms = |ns: i64| ((ns + 500_000) / 1_000_000).to_string();
        ensure!(mean_line[n] == in_ms(mean) && difference_line[n] == in_ms(difference), "{column}:\n{table}");
        before = mean;
    }
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
    let (row, _) = recovered()?;
    row.ensure_ordered_since(left()?)?;
    leave()
}

#[test]
fn a_second_one_is_compared() -> Result<()> {
    let (row, _) = recovered()?;
    row.ensure_ordered_since(left()?)?;
    ensure_average(2)?;
    leave()
}

/// Those boots' recordings, and this one's that was cut off with the power.
#[test]
fn a_power_cut_is_told() -> Result<()> {
    let (row, _) = recovered()?;
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
