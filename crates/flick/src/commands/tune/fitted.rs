//! `--model FILE`: a fitted model of a service, which is written behind a search and chooses a setting later without a
//! trial, also for another bound or goal.
//! Promises: the file holds the trials, from which the same processes are fitted each time; whatever is in the file is
//! checked; what is predicted says so. Not here: the prediction (`flick-tune`), the search (`trials.rs`).

use std::io::{ErrorKind, Write};
use std::path::Path;

use flick_check::counted;
use flick_tune::limits::{GRID_MAX, TRIALS_MAX};
use flick_tune::{Prediction, Search, Trial};
use serde::{Deserialize, Serialize};

use super::kernel::KernelKnobName;
use super::target::KnobSetting;
use super::trials::{MARGIN, SearchPlan, SearchResult, TriedSetting, coordinates};

/// Version of the file.
const VERSION: u32 = 1;

/// Bytes of a file, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The trials of a service under one load.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FittedModel {
    version: u32,
    pub(super) service: String,
    /// The percentile that the trials have.
    percentile: String,
    is_energy_measured: bool,
    shares_threads: bool,
    /// The first one is of the setting that the service had.
    trials: Vec<TriedSetting>,
}

/// The choice of a model.
#[derive(Debug, Serialize)]
pub(super) struct PredictedChoice {
    service: String,
    energy: &'static str,
    percentile: String,
    sla_us: u64,
    /// The load of the trials.
    requests_per_s: f64,
    trials: usize,
    /// The setting that the service had, with its measurement.
    present: TriedSetting,
    /// The best setting, if one most probably keeps the SLA.
    pub(super) best: Option<PredictedSetting>,
    /// The knobs of the service are those of `best` now.
    pub(super) is_applied: bool,
}

/// A setting with what the model predicts of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PredictedSetting {
    pub(super) knobs: KnobSetting,
    bounded_us: f64,
    /// The quantity that is minimised: CPU time in us, J for a million requests, or the latency in us.
    cost: f64,
    /// The same of the present setting.
    present_cost: f64,
    keeps_sla_probability: f64,
}

impl FittedModel {
    /// The model of a search that has ended.
    pub(super) fn new(service: &str, plan: &SearchPlan, found: &SearchResult) -> Self {
        Self {
            version: VERSION,
            service: service.to_owned(),
            percentile: plan.sla.name().to_owned(),
            is_energy_measured: plan.is_measured,
            shares_threads: plan.shares_threads,
            trials: found.trials.clone(),
        }
    }

    /// Reads a model; `None`: there is no such file. Errors: why it is none.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, String> {
        let wrong = |why: String| format!("{} is no model of `flick tune`: {why}", path.display());
        let failed = |error| format!("cannot read the model {}: {error}", path.display());
        let text = match std::fs::metadata(path).and_then(|metadata| {
            if metadata.len() > FILE_BYTES_MAX { Ok(None) } else { std::fs::read_to_string(path).map(Some) }
        }) {
            Ok(Some(text)) => text,
            Ok(None) => return Err(wrong(format!("it has more than {FILE_BYTES_MAX} bytes"))),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let model: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        model.check().map_err(wrong)?;
        Ok(Some(model))
    }

    /// Errors: why nothing can be predicted from it.
    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("its version is {}, and this flick has {VERSION}", self.version));
        }
        if self.trials.is_empty() || self.trials.len() > TRIALS_MAX {
            return Err(format!("it has {} trials, and not 1 to {TRIALS_MAX}", self.trials.len()));
        }
        for (number, tried) in self.trials.iter().enumerate() {
            let result = &tried.result;
            let all = [result.bounded_us, result.cpu_us_per_request, result.joules_per_million_requests];
            if !all.iter().all(|value| value.is_finite() && *value > 0.0) {
                return Err(format!("trial {} has no latency or cost", number + 1));
            }
            if tried.knobs.kernel.names() != self.trials[0].knobs.kernel.names() {
                return Err(format!("trial {} has other knobs than the first one", number + 1));
            }
        }
        Ok(())
    }

    /// Checks before a search, which takes minutes, that a file can be written here. Errors: why it cannot.
    pub(super) fn check_target(path: &Path) -> Result<(), String> {
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let result = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
        let failed =
            |error| format!("cannot write the model {}: {}", path.display(), std::io::Error::from(error));
        result.map_err(failed)
    }

    /// Writes the model to a new file. Errors: why it cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("strings and numbers are valid JSON");
        let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{text}"));
        written.map_err(|error| format!("cannot write the model {}: {error}", path.display()))
    }

    /// The setting of the first trial.
    pub(super) fn present(&self) -> KnobSetting {
        self.trials[0].knobs
    }

    /// The plan by which the trials were made, with another bound and goal; `kernel` is empty.
    ///
    /// Errors: the model knows nothing of this percentile, or of energy.
    pub(super) fn choose(&self, plan: SearchPlan) -> Result<PredictedChoice, String> {
        let sla = plan.sla;
        if sla.name() != self.percentile {
            return Err(format!("the model knows {} and not {}", self.percentile, sla.name()));
        }
        let plan = SearchPlan {
            is_measured: self.is_energy_measured,
            shares_threads: self.shares_threads,
            kernel: self.kernel_values(),
            ..plan
        };
        let first = self.trials[0];
        let mut candidates: Vec<KnobSetting> = Vec::new();
        for knobs in self.trials.iter().map(|tried| tried.knobs).chain(plan.candidates(first.knobs)) {
            if candidates.len() < GRID_MAX && !candidates.contains(&knobs) {
                candidates.push(knobs);
            }
        }
        let limit = MARGIN * sla.latency_us() as f64;
        let mut search = Search::new(coordinates(&candidates), limit, plan.seed);
        for tried in &self.trials {
            let candidate =
                candidates.iter().position(|knobs| *knobs == tried.knobs).expect("trials come first");
            let limited = plan.limited(&tried.result, &first.result);
            search.observe(Trial { candidate, cost: plan.cost(&tried.result), limited });
        }
        let predicted = |Prediction { candidate, cost, limited, kept }| PredictedSetting {
            knobs: candidates[candidate],
            bounded_us: limited,
            cost,
            present_cost: plan.cost(&first.result),
            keeps_sla_probability: kept,
        };
        Ok(PredictedChoice {
            service: self.service.clone(),
            energy: if self.is_energy_measured { "measured" } else { "modelled" },
            percentile: self.percentile.clone(),
            sla_us: sla.latency_us(),
            requests_per_s: first.result.requests_per_s,
            trials: self.trials.len(),
            present: TriedSetting { keeps_sla: first.result.bounded_us <= sla.latency_us() as f64, ..first },
            best: search.predicted_best().map(predicted),
            is_applied: false,
        })
    }

    /// The values of the kernel's knobs that were tried.
    fn kernel_values(&self) -> Vec<(KernelKnobName, Vec<u64>)> {
        let values = |name| {
            let values = self.trials.iter().filter_map(|tried| tried.knobs.kernel.value(name));
            (name, values.collect())
        };
        self.present().kernel.names().into_iter().map(values).collect()
    }
}

impl PredictedChoice {
    /// The choice in words; `what` is minimised.
    pub(super) fn text(&self, what: &str) -> String {
        let Self { service, percentile, sla_us, present, .. } = self;
        let mut out = format!(
            "{service}: {} at {:.0} requests/s, {percentile} <= {sla_us} us, for {what}\n\
             present: {percentile} {:.0} us (measured), {}\n",
            counted(self.trials, "trial"),
            self.requests_per_s,
            present.result.bounded_us,
            present.knobs
        );
        match self.best {
            None => out.push_str("the model predicts no setting that keeps the SLA\n"),
            Some(best) if best.knobs == present.knobs => out.push_str("the present setting is the best\n"),
            Some(best) => out.push_str(&format!(
                "\n- {}\n+ {}\n{what}: {:+.0} % (predicted), {percentile} {:.0} us (predicted), \
                 the SLA is kept with a probability of {:.0} %\n",
                present.knobs,
                best.knobs,
                100.0 * (best.cost / best.present_cost - 1.0),
                best.bounded_us,
                100.0 * best.keeps_sla_probability
            )),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::{FittedModel, SearchPlan};
    use crate::commands::tune::Goal;

    /// A model of a service to which busy polls cost CPU time and save latency.
    fn model() -> Value {
        let trial = |busy_poll_us: u64, bounded_us: f64, cpu_us: f64| {
            json!({
                "knobs": {"busy_poll_us": busy_poll_us, "batch_delay_max_us": 0, "time_slice_us": 50},
                "result": {
                    "requests_per_s": 5000.0, "p50_us": bounded_us / 2.0, "bounded_us": bounded_us, "requests": 10_000,
                    "errors": 0.0, "cpu_us_per_request": cpu_us, "cores": 0.1, "joules_per_million_requests": cpu_us,
                },
                "keeps_sla": true,
            })
        };
        let trials = [
            trial(200, 100.0, 100.0),
            trial(100, 110.0, 80.0),
            trial(50, 150.0, 50.0),
            trial(20, 300.0, 30.0),
            trial(0, 400.0, 20.0),
        ];
        json!({
            "version": 1, "service": "s", "percentile": "p99", "is_energy_measured": false, "shares_threads": false,
            "trials": trials,
        })
    }

    fn read(text: &str, name: &str) -> Result<Option<FittedModel>, String> {
        let path = std::env::temp_dir().join(format!("flick-model-{name}-{}", std::process::id()));
        std::fs::write(&path, text).expect("the directory can be written");
        let model = FittedModel::read(&path);
        std::fs::remove_file(&path).expect("it is there");
        model
    }

    fn plan(sla: &str, goal: Goal) -> SearchPlan {
        let sla = sla.parse().expect("a bound");
        let (is_measured, shares_threads) = (false, false);
        SearchPlan { sla, goal, budget: 25, seed: 1, is_measured, shares_threads, kernel: Vec::new() }
    }

    #[test]
    fn one_model_chooses_for_several_bounds_and_goals() {
        let model = read(&model().to_string(), "bounds").expect("a model").expect("a file");
        let chosen = |sla: &str, goal| {
            let choice = model.choose(plan(sla, goal)).expect("it knows p99");
            choice.best.map(|best| best.knobs.busy_poll_us)
        };
        assert_eq!(chosen("p99:1ms", Goal::Energy), Some(0));
        assert!(chosen("p99:220us", Goal::Energy).is_some_and(|poll_us| (20..=50).contains(&poll_us)));
        assert_eq!(chosen("p99:10us", Goal::Energy), None);
        assert!(chosen("p99:1ms", Goal::Latency).is_some_and(|poll_us| poll_us >= 100));
        let error = model.choose(plan("p90:1ms", Goal::Energy)).expect_err("it has no p90");
        assert_eq!(error, "the model knows p99 and not p90");
        let text = model.choose(plan("p99:1ms", Goal::Energy)).expect("a choice").text("energy per request");
        for piece in ["5 trials at 5000 requests/s", "p99 100 us (measured)", "-80 % (predicted)"] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
    }

    #[test]
    fn malformed_models_say_what_is_wrong() {
        let changed = |pointer: &str, value: Value| {
            let mut all = model();
            let (parent, key) = pointer.rsplit_once('/').expect("it has one");
            all.pointer_mut(parent).expect("it is there")[key] = value;
            all.to_string()
        };
        for (number, (text, why)) in [
            ("{".to_owned(), "EOF while parsing"),
            (changed("/version", json!(2)), "its version is 2, and this flick has 1"),
            (changed("/trials", json!([])), "it has 0 trials, and not 1 to 100"),
            (changed("/trials/1/result/cpu_us_per_request", json!(0.0)), "trial 2 has no latency or cost"),
            (
                changed("/trials/1/knobs/clock_khz", json!(1_200_000)),
                "trial 2 has other knobs than the first one",
            ),
            (changed("/trials/0/knobs/busy_poll_us", json!("1us")), "invalid type"),
            (format!("{}{}", model(), " ".repeat(1 << 20)), "it has more than 1048576 bytes"),
        ]
        .into_iter()
        .enumerate()
        {
            let error = read(&text, &format!("malformed-{number}")).expect_err(why);
            assert!(error.contains("is no model of `flick tune`: ") && error.contains(why), "{why}: {error}");
        }
        assert!(FittedModel::read(Path::new("/nonexistent/model")).is_ok_and(|model| model.is_none()));
        let error = FittedModel::read(Path::new("/")).expect_err("it is a directory");
        assert!(error.starts_with("cannot read the model /: "), "{error}");
    }
}
