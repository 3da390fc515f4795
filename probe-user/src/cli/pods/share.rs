//! How long each phase of a start takes on this node.

use crate::{
    cli::{args::Form, table::aligned},
    engine::share::Share,
    sink::{
        render::{jsonl, phase},
        span::span,
    },
};

pub(super) fn write(shares: &[Share], form: Form) -> Vec<u8> {
    match form {
        Form::Text => text(shares).into_bytes(),
        Form::Json => {
            let mut bytes = Vec::new();
            shares.iter().for_each(|share| jsonl::share(share, &mut bytes));
            bytes
        }
    }
}

fn text(shares: &[Share]) -> String {
    if shares.is_empty() {
        return "no start was seen whole\n".to_owned();
    }
    let rows: Vec<_> = shares
        .iter()
        .map(|it| [phase::share(it), it.starts.to_string(), span(it.p50), span(it.p90), span(it.p99)])
        .collect();
    aligned(["PHASE", "STARTS", "P50", "P90", "P99"], &rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Form, write};
    use crate::{engine::share::Share, model::phase::Kind};

    fn shares() -> Vec<Share> {
        let share = |kind, ms| Share {
            kind,
            starts: 20,
            p50: Duration::from_millis(ms),
            p90: Duration::from_millis(2 * ms),
            p99: Duration::from_millis(3 * ms),
        };
        let bridge = Kind::Cni { plugin: "bridge".to_owned(), ifname: String::new() };
        vec![share(Some(bridge), 35), share(Some(Kind::Image), 700), share(None, 1200)]
    }

    fn told(shares: &[Share], form: Form) -> String {
        String::from_utf8(write(shares, form)).expect("text")
    }

    #[test]
    fn a_table_has_each_phase_and_the_whole() {
        assert_eq!(
            told(&shares(), Form::Text),
            "\
PHASE        STARTS  P50      P90      P99
cni bridge   20      35.0 ms  70.0 ms  105 ms
image        20      700 ms   1.40 s   2.10 s
whole start  20      1.20 s   2.40 s   3.60 s
"
        );
        assert_eq!(told(&[], Form::Text), "no start was seen whole\n");
    }

    #[test]
    fn json_is_one_object_a_phase() {
        let lines = told(&shares(), Form::Json);
        let expected = concat!(
            r#"{"phase":"cni","plugin":"bridge","starts":20,"p50_ns":"35000000","#,
            r#""p90_ns":"70000000","p99_ns":"105000000","title":"cni bridge"}"#
        );
        assert_eq!(lines.lines().next(), Some(expected));
        let whole = concat!(
            r#"{"starts":20,"p50_ns":"1200000000","p90_ns":"2400000000","p99_ns":"3600000000","#,
            r#""title":"whole start"}"#
        );
        assert_eq!(lines.lines().last(), Some(whole));
    }
}
