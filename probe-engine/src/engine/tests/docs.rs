//! Compares the times and counts on the pages on starts, restarts, findings and settings with the code's
//! constants. The tests of the pages of single findings are beside their rules.

use std::time::Duration;

use probe_common::runtime::{self, DISTRIBUTIONS};

use crate::{
    engine::{
        boot::{WINDOW, report::HUNG},
        detect::Limits,
        world::{
            lookup::{
                self,
                phase::{QUIET, WAIT, image::HANDED_ON},
            },
            react::{
                self,
                log_search::LONG,
                reading::{BETWEEN, POLL},
            },
            table::{
                self, list,
                recovery::{PODS, TRIES, WITHOUT_EFFECT},
                sandbox::{MOMENTS, run::LATE},
                start::STARTS,
            },
        },
    },
    model::recovery::{LONGEST_SHUTDOWN, Rules, WITHIN},
};

const PHASES: &str = include_str!("../../../../docs/phases.md");

const BOOT: &str = include_str!("../../../../docs/boot.md");

const FINDINGS: &str = include_str!("../../../../docs/findings.md");

const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");

const UNIT: &str = include_str!("../../../../deploy/systemd/sandprobe.service");

fn minutes(time: Duration) -> u64 {
    assert_eq!(time.as_secs() % 60, 0, "{time:?}");
    time.as_secs() / 60
}

fn thousands(count: usize) -> String {
    format!("{},{:03}", count / 1000, count % 1000)
}

#[track_caller]
fn says(page: &str, phrases: &[String]) {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for phrase in phrases {
        assert!(page.contains(phrase), "the page does not say: {phrase}");
    }
}

#[test]
fn the_page_on_starts_has_the_codes_times() {
    assert_eq!(LONG.as_secs(), 1);
    let memory = minutes(table::MEMORY);
    says(
        PHASES,
        &[
            format!("within {} minutes of the program's exec", minutes(WITHIN)),
            format!("does not come within {} minutes of the last sign", minutes(WAIT)),
            format!("has been announced or begun for {} s since", QUIET.as_secs()),
            format!("not {} s later", QUIET.as_secs()),
            format!("took longer than {} s), else within {} minutes", QUIET.as_secs(), minutes(LATE)),
            format!("all failed sandboxes that are remembered ({memory} minutes)"),
            format!("of those that are remembered ({memory} minutes)"),
            format!("of the latest {} starts", thousands(STARTS)),
            "An `image` phase of a second or longer".to_owned(),
            format!("begun within {} ms after the one before had ended", HANDED_ON.as_millis()),
        ],
    );
}

#[test]
fn the_page_on_restarts_has_the_codes_times() {
    assert_eq!(minutes(WITHOUT_EFFECT), 2);
    let listens = minutes(WITHIN);
    says(
        BOOT,
        &[
            format!("(`boot_quiet`, {} min)", minutes(Rules::default().quiet)),
            format!("within {} minutes of the boot", minutes(WINDOW)),
            format!("listen within {listens} minutes of its container's start"),
            format!("has not for {listens} minutes"),
            format!("outlived by {} minutes", minutes(LONGEST_SHUTDOWN)),
            "still run two minutes later".to_owned(),
            format!("({} pods, {} sandboxes' networks)", thousands(PODS), thousands(TRIES)),
            format!("ends that had run for {} s or longer", lookup::daemons::RESIDENT.as_secs()),
            format!("within {} minutes of an order", minutes(LONGEST_SHUTDOWN)),
            format!("within {} s of its start, or while pods", table::failing::UP.as_secs()),
            format!("had begun within {} minutes before", minutes(lookup::restart::YOUNG)),
            format!("within {} minutes after the start of the daemon", minutes(MOMENTS)),
            format!("hung, which is {} s or longer", HUNG.as_secs()),
            format!("over {} minutes after the start of the daemon", minutes(MOMENTS)),
            format!("After {} minutes it is over in any case", minutes(WINDOW)),
            format!(
                "the last {} restarts of a boot, with at most {} pods",
                react::restart::KEPT,
                react::restart::HELD
            ),
        ],
    );
}

#[test]
fn the_index_of_findings_has_the_codes_times() {
    says(
        FINDINGS,
        &[
            format!("`--leak-grace` ({} minutes)", minutes(Limits::default().leak_grace)),
            format!("nothing was lost for {} s", list::QUIET.as_secs()),
        ],
    );
}

#[test]
fn the_page_on_settings_has_the_codes_times_runtimes_and_distributions() {
    let code = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let (servers, kubelets) = (code(runtime::servers().collect()), code(runtime::kubelets().collect()));
    let distributions: Vec<&str> = DISTRIBUTIONS.iter().map(|row| row.name).collect();
    let (last, others) = distributions.split_last().expect("some");
    says(
        CONFIGURATION,
        &[
            format!("by the names of their programs: {servers}; kubelets by {kubelets}."),
            format!("The usual paths of {} and {last} are read", others.join(", ")),
            format!("not sooner than {} s after the reading before", BETWEEN.as_secs()),
            format!("they are read every {} s in any case", POLL.as_secs()),
        ],
    );

    let units = runtime::of_runtimes(|row| row.units).chain(runtime::of_distributions(|row| row.units));
    let units: Vec<String> = units.map(|unit| format!("{unit}.service")).collect();
    says(UNIT, &[format!("Before={}", units.join(" "))]);
}
