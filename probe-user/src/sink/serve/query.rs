//! The query of a request. An unknown parameter is an error.

use strum::VariantNames;

use super::reply::ApiError;
use crate::{
    model::{
        change::{ChangeKind, Finding},
        finding::{Kind, Stage},
    },
    sink::select::{filter::Filter, findings::is_of},
};

/// The names and values of a query, in their order.
pub(super) struct Query(Vec<(String, String)>);

/// The maximum number of parameters of a request.
const MAX_PARAMETERS: usize = 64;

/// The parameters of `/v1/events`.
pub(super) const EVENTS: [&str; 6] = ["since", "follow", "namespace", "pod", "container", "event"];

impl Query {
    /// Parses a query. A name that is not in `known` is an error, because a mistyped name would select
    /// something else.
    pub(super) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, ApiError> {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let pairs: Vec<(String, String)> = pairs.into_owned().take(MAX_PARAMETERS + 1).collect();
        if pairs.len() > MAX_PARAMETERS {
            return Err(ApiError::Parameter(format!("there are more than {MAX_PARAMETERS} parameters")));
        }
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(Self(pairs)),
            Some((name, _)) if known.is_empty() => {
                Err(ApiError::Parameter(format!("there is no parameter {name:?}: this takes none")))
            }
            Some((name, _)) => Err(ApiError::Parameter(format!(
                "there is no parameter {name:?}: there are {}",
                known.join(", ")
            ))),
        }
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(it, _)| it == name).map(|(_, value)| value.clone()).collect()
    }

    pub(super) fn one(&self, name: &str) -> Result<Option<String>, ApiError> {
        let mut all = self.all(name);
        match all.len() {
            0 | 1 => Ok(all.pop()),
            _ => Err(ApiError::Parameter(format!("{name} is given more than once"))),
        }
    }

    /// The value, which must be one of `words`; the first word if there is no value.
    fn word(&self, name: &str, words: &[&'static str]) -> Result<&'static str, ApiError> {
        let given = self.one(name)?;
        let found = match &given {
            Some(given) => words.iter().find(|word| *word == given),
            None => words.first(),
        };
        found.copied().ok_or_else(|| wrong(name, given.as_deref().unwrap_or_default(), words))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        let words = if default { ["true", "false"] } else { ["false", "true"] };
        Ok(self.word(name, &words)? == "true")
    }

    /// All values of a name, which must be in `words`.
    fn words(&self, name: &str, words: &[&'static str]) -> Result<Vec<String>, ApiError> {
        let given = self.all(name);
        match given.iter().find(|it| !words.contains(&it.as_str())) {
            None => Ok(given),
            Some(strange) => Err(wrong(name, strange, words)),
        }
    }

    /// The filter for events, as in `sandprobe watch`.
    pub(super) fn filter(&self) -> Result<Filter, ApiError> {
        Ok(Filter {
            namespaces: self.all("namespace"),
            pods: self.all("pod"),
            containers: self.all("container"),
            events: self.words("event", ChangeKind::VARIANTS)?,
        })
    }
}

fn wrong(name: &str, given: &str, words: &[&str]) -> ApiError {
    ApiError::Parameter(format!("{name} cannot be {given:?}: it is one of {}", words.join(", ")))
}

/// The wanted findings.
#[derive(Debug)]
pub(super) struct Findings {
    all: bool,
    kinds: Vec<String>,
    namespaces: Vec<String>,
    pods: Vec<String>,
}

impl Findings {
    pub(super) const NAMES: [&str; 4] = ["state", "kind", "namespace", "pod"];

    pub(super) fn of(query: &Query) -> Result<Self, ApiError> {
        Ok(Self {
            all: query.word("state", &["open", "all"])? == "all",
            kinds: query.words("kind", Kind::VARIANTS)?,
            namespaces: query.all("namespace"),
            pods: query.all("pod"),
        })
    }

    pub(super) fn keeps(&self, finding: &Finding) -> bool {
        let kind = finding.kind.into_str();
        let namespace = finding.pod.as_ref().and_then(|pod| pod.namespace.as_deref());
        (self.all || finding.stage != Stage::Closed)
            && has(&self.kinds, Some(kind))
            && has(&self.namespaces, namespace)
            && (self.pods.is_empty() || self.pods.iter().any(|asked| is_of(finding, asked)))
    }
}

fn has(names: &[String], name: Option<&str>) -> bool {
    names.is_empty() || name.is_some_and(|name| names.iter().any(|it| it == name))
}

#[cfg(test)]
mod tests {
    use super::{ApiError, Findings, Query};

    fn parse(text: &str) -> Result<Query, ApiError> {
        Query::parse(Some(text), &["namespace", "pod", "container", "event", "state", "kind", "since"])
    }

    fn why<T>(result: Result<T, ApiError>) -> String {
        match result {
            Err(ApiError::Parameter(why)) => why,
            Err(other) => format!("{other:?}"),
            Ok(_) => String::new(),
        }
    }

    #[test]
    fn names_and_values_are_decoded() {
        let query = parse("pod=a%2Fb&pod=c+d&namespace=%C3%A9").expect("a query");
        assert_eq!(query.all("pod"), ["a/b", "c d"]);
        assert_eq!(query.one("namespace").expect("one"), Some("é".to_owned()));
        assert_eq!(query.filter().expect("a filter").pods, ["a/b", "c d"]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(why(parse("pods=x")).contains("no parameter \"pods\": there are namespace, pod"));
        assert!(why(Query::parse(Some("x"), &[])).contains("takes none"));
        assert!(why(parse("since=1&since=2").expect("a query").one("since")).contains("more than once"));
        assert!(
            why(parse("event=pod.born").expect("a query").filter()).contains("event cannot be \"pod.born\"")
        );
        assert!(why(parse("event=").expect("a query").filter()).contains("event cannot be \"\""));
        assert!(
            why(Findings::of(&parse("state=closed").expect("a query"))).contains("it is one of open, all")
        );
        assert!(why(Findings::of(&parse("kind=leak").expect("a query"))).contains("leaked_address"));
        let many = "pod=x&".repeat(65);
        assert!(why(parse(&many)).contains("more than 64"));
    }
}
