//! A strict parser of OpenMetrics.
//! Source: OpenMetrics 1.0.0: families are declared before their samples and stand together; suffixes belong to types;
//! buckets grow up to `+Inf`, which is the count; the text ends with `# EOF`.

use std::collections::{BTreeMap, BTreeSet};

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name, with the suffix.
    pub name: String,
    /// Its labels, in their order.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
}

/// All samples.
#[derive(Debug)]
pub struct Metrics(Vec<Sample>);

struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    samples: Vec<Sample>,
}

/// The samples of a histogram with the same labels.
#[derive(Default)]
struct Series {
    /// Bounds and counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    has_sum: bool,
}

impl Metrics {
    /// Parses a text. Errors: what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix("# EOF\n").ok_or("no `# EOF` at the end")?;
        let mut families: Vec<Family<'_>> = Vec::new();
        let mut names = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words.as_slice() {
                ["#", "TYPE", name, kind] => {
                    check_name(name)?;
                    names.insert(*name).then_some(()).ok_or(format!("`{name}` is declared twice"))?;
                    families.push(Family { name, kind, samples: Vec::new() });
                }
                ["#", "UNIT", name, unit] => {
                    let is_last = families
                        .last()
                        .is_some_and(|family| family.name == *name && family.samples.is_empty());
                    let is_right = is_last && name.ends_with(&format!("_{unit}"));
                    is_right.then_some(()).ok_or(format!("a unit in the wrong place: {line}"))?;
                }
                ["#", "HELP", name, _] => {
                    let is_last = families
                        .last()
                        .is_some_and(|family| family.name == *name && family.samples.is_empty());
                    is_last.then_some(()).ok_or(format!("a help in the wrong place: {line}"))?;
                }
                ["#", ..] | [] | [""] => return Err(format!("not a line of OpenMetrics: {line:?}")),
                _ => {
                    let sample = sample(line).ok_or(format!("not a sample: {line}"))?;
                    let key = (sample.name.clone(), sample.labels.clone());
                    seen.insert(key).then_some(()).ok_or(format!("twice: {line}"))?;
                    let family = families.last_mut().ok_or("a sample without a family")?;
                    family
                        .accepts(&sample.name)
                        .then_some(())
                        .ok_or(format!("not of {}: {line}", family.name))?;
                    family.samples.push(sample);
                }
            }
        }
        families.iter().try_for_each(Family::check)?;
        Ok(Self(families.into_iter().flat_map(|family| family.samples).collect()))
    }

    /// Samples of this name.
    pub fn samples(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// Sum of the samples of this name. Panics if there are none.
    pub fn sum(&self, name: &str) -> f64 {
        assert!(self.samples(name).next().is_some(), "there is no `{name}`");
        self.samples(name).map(|sample| sample.value).sum()
    }
}

impl Family<'_> {
    fn suffixes(&self) -> &[&str] {
        match self.kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[],
        }
    }

    fn accepts(&self, name: &str) -> bool {
        name.strip_prefix(self.name).is_some_and(|suffix| self.suffixes().contains(&suffix))
    }

    fn check(&self) -> Result<(), String> {
        for sample in &self.samples {
            let is_right = match self.kind {
                "counter" | "histogram" => sample.value >= 0.0,
                "info" => sample.value == 1.0,
                _ => sample.value.is_finite(),
            };
            is_right.then_some(()).ok_or(format!("a value that a {} cannot have: {sample:?}", self.kind))?;
        }
        if self.kind == "histogram" { self.check_buckets() } else { Ok(()) }
    }

    fn check_buckets(&self) -> Result<(), String> {
        let mut series: BTreeMap<Vec<(String, String)>, Series> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            let bound = match labels.last() {
                Some((name, bound)) if name == "le" => Some(bound.clone()),
                _ => None,
            };
            if bound.is_some() {
                labels.pop();
            }
            let entry = series.entry(labels).or_default();
            match bound {
                Some(bound) => {
                    let bound = if bound == "+Inf" {
                        f64::INFINITY
                    } else {
                        number(&bound).ok_or(format!("a bound: {bound}"))?
                    };
                    entry.buckets.push((bound, sample.value));
                }
                None if sample.name.ends_with("_count") => entry.count = Some(sample.value),
                None => entry.has_sum = true,
            }
        }
        for (labels, Series { buckets, count, has_sum }) in series {
            let grows = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let last = buckets.last().copied();
            let is_whole = has_sum && count.is_some_and(|count| last == Some((f64::INFINITY, count)));
            (grows && is_whole)
                .then_some(())
                .ok_or(format!("buckets of {} {labels:?}: {buckets:?}", self.name))?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_legal = begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_plain =
        !["_total", "_bucket", "_count", "_sum", "_created", "_info"].iter().any(|end| name.ends_with(end));
    (is_legal && is_plain).then_some(()).ok_or(format!("`{name}` is no name of a family"))
}

/// `name{label="value",...} value`, or without labels.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let Some(mut rest) = rest.strip_prefix('{') else {
        return Some(Sample {
            name: name.to_owned(),
            labels: Vec::new(),
            value: number(rest.strip_prefix(' ')?)?,
        });
    };
    let mut labels = Vec::new();
    loop {
        let (label, after) = rest.split_once("=\"")?;
        check_name(label).ok()?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let behind = loop {
            match chars.next()? {
                (at, '"') => break &after[at + 1..],
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c @ ('"' | '\\') => c,
                    _ => return None,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((label.to_owned(), value));
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                let value = number(behind.strip_prefix("} ")?)?;
                return Some(Sample { name: name.to_owned(), labels, value });
            }
        }
    }
}

fn number(text: &str) -> Option<f64> {
    let is_plain =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || b".-+e".contains(&byte));
    is_plain.then(|| text.parse().ok()).flatten()
}
