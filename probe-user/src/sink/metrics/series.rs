//! The series of one family, which never exceed its cap.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::{
    Counter, CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry,
    core::{Collector, MetricVec, MetricVecBuilder},
};

use super::{
    bucket,
    family::{Family, OPEN},
    label::{OTHER, PodLabel},
};

/// How many series of a cap are reserved for `other`. Each combination of the closed labels can have one.
const ROOM: usize = 64;

/// A vector of metrics.
pub(super) trait Vector: Collector + Clone + 'static {
    type One;
    fn make(family: &Family, labels: &[&str]) -> prometheus::Result<Self>;
    fn one(&self, values: &[&str]) -> Option<Self::One>;
    fn remove(&self, values: &[&str]);
}

fn at<B: MetricVecBuilder>(vector: &MetricVec<B>, values: &[&str]) -> Option<B::M> {
    // This fails only if the numbers of values and labels differ, and both come from one table.
    vector.get_metric_with_label_values(values).ok()
}

macro_rules! vector {
    ($vector:ident, $one:ident, $options:expr) => {
        impl Vector for $vector {
            type One = prometheus::$one;

            fn make(family: &Family, labels: &[&str]) -> prometheus::Result<Self> {
                Self::new(($options)(family), labels)
            }

            fn one(&self, values: &[&str]) -> Option<Self::One> {
                at(self, values)
            }

            fn remove(&self, values: &[&str]) {
                // A series that does not exist need not be removed.
                self.remove_label_values(values).ok();
            }
        }
    };
}

vector!(CounterVec, Counter, |family: &Family| Opts::new(family.name, family.help));
vector!(GaugeVec, Gauge, |family: &Family| Opts::new(family.name, family.help));
vector!(HistogramVec, Histogram, |family: &Family| {
    HistogramOpts::new(family.name, family.help).buckets(bucket::of(family).to_vec())
});

/// The registry of the families, and what the families share.
#[derive(Clone, Copy)]
pub(super) struct Registrar<'a> {
    pub(super) registry: &'a Registry,
    /// The labels that identify pods.
    pub(super) labels: &'a [PodLabel],
    /// Counts the folded values by family.
    pub(super) folded: &'a CounterVec,
}

impl Registrar<'_> {
    pub(super) fn series<V: Vector>(self, family: &'static Family) -> prometheus::Result<Series<V>> {
        Series::new(self.registry, family, self.labels, self.folded)
    }
}

/// The series of a family.
pub(super) struct Series<V> {
    vector: V,
    /// For each of its own labels, whether the node chooses the values.
    open: Vec<bool>,
    /// The family's labels of pods, as indexes into those that the user asked for.
    of_pod: Vec<usize>,
    known: BTreeSet<Vec<String>>,
    cap: usize,
    folded: Counter,
}

impl<V: Vector> Series<V> {
    /// Registers the family.
    pub(super) fn new(
        registry: &Registry,
        family: &'static Family,
        asked: &[PodLabel],
        folded: &CounterVec,
    ) -> prometheus::Result<Self> {
        let of_pod: Vec<usize> =
            (0..asked.len()).filter(|at| asked.get(*at).is_some_and(|it| family.pods.takes(*it))).collect();
        let pods = of_pod.iter().filter_map(|at| asked.get(*at)).map(|label| label.word());
        let labels: Vec<&str> = family.labels.iter().copied().chain(pods).collect();
        let vector = V::make(family, &labels)?;
        registry.register(Box::new(vector.clone()))?;
        Ok(Self {
            vector,
            open: family.labels.iter().map(|label| OPEN.contains(label)).collect(),
            of_pod,
            known: BTreeSet::new(),
            cap: family.kind.cap(),
            folded: folded.get_metric_with_label_values(&[family.name])?,
        })
    }

    /// The series with these values of the family's own labels, and of all labels of pods that the user asked
    /// for.
    pub(super) fn at(&mut self, own: &[&str], pod: &[String]) -> Option<V::One> {
        let tail = self.tail(pod);
        let values: Vec<String> = own.iter().map(|value| (*value).to_owned()).chain(tail).collect();
        let values = if self.has_room(&values) { values } else { self.fold(values) };
        self.known_as(values)
    }

    fn known_as(&mut self, values: Vec<String>) -> Option<V::One> {
        let one = self.vector.one(&values.iter().map(String::as_str).collect::<Vec<_>>());
        self.known.insert(values);
        one
    }

    /// Drops the series of removed pods, except those that a remaining pod shares, such as one of the same
    /// workload.
    pub(super) fn drop_pods(&mut self, gone: &[Vec<String>], stay: &[&Vec<String>]) {
        let mut tails: BTreeSet<Vec<String>> = gone.iter().map(|pod| self.tail(pod)).collect();
        stay.iter().for_each(|pod| drop(tails.take(&self.tail(pod))));
        let own = self.open.len();
        self.drop_where(|values| {
            values.get(own..).is_some_and(|tail| !tail.is_empty() && tails.contains(tail))
        });
    }

    fn tail(&self, pod: &[String]) -> Vec<String> {
        self.of_pod.iter().filter_map(|at| pod.get(*at).cloned()).collect()
    }

    fn has_room(&self, values: &[String]) -> bool {
        self.known.contains(values) || self.known.len() < self.cap.saturating_sub(ROOM)
    }

    /// The series for values without room: the closed labels keep their values.
    fn fold(&self, values: Vec<String>) -> Vec<String> {
        self.folded.inc();
        let places = values.into_iter().enumerate();
        places
            .map(|(place, value)| if self.open.get(place) == Some(&false) { value } else { OTHER.to_owned() })
            .collect()
    }

    fn drop_where(&mut self, is_gone: impl Fn(&[String]) -> bool) {
        let vector = &self.vector;
        self.known.retain(|values| {
            let gone = is_gone(values);
            if gone {
                vector.remove(&values.iter().map(String::as_str).collect::<Vec<_>>());
            }
            !gone
        });
    }
}

impl Series<CounterVec> {
    pub(super) fn add(&mut self, own: &[&str], pod: &[String], count: f64) {
        if let Some(one) = self.at(own, pod) {
            one.inc_by(count);
        }
    }

    /// Raises a counter to `total`, which another part of the program counts.
    pub(super) fn raise(&mut self, own: &[&str], total: f64) {
        if let Some(one) = self.at(own, &[]) {
            one.inc_by((total - one.get()).max(0.0));
        }
    }
}

impl Series<HistogramVec> {
    pub(super) fn observe(&mut self, own: &[&str], pod: &[String], seconds: f64) {
        if let Some(one) = self.at(own, pod) {
            one.observe(seconds);
        }
    }
}

impl Series<GaugeVec> {
    /// Sets the gauges to exactly these rows. Rows without room are added together.
    pub(super) fn set(&mut self, rows: impl IntoIterator<Item = (Vec<String>, f64)>) {
        let mut sums: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for (values, value) in rows {
            *sums.entry(values).or_default() += value;
        }
        self.drop_where(|values| !sums.contains_key(values));
        let mut others: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for (values, value) in sums {
            if !self.has_room(&values) {
                *others.entry(self.fold(values)).or_default() += value;
            } else if let Some(one) = self.known_as(values) {
                one.set(value);
            }
        }
        for (values, value) in others {
            if let Some(one) = self.known_as(values) {
                one.set(value);
            }
        }
    }

    /// Sets a family without labels; `None` means unknown.
    pub(super) fn set_one(&mut self, value: Option<f64>) {
        self.set(value.map(|value| (Vec::new(), value)));
    }
}
