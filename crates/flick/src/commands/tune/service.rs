//! `flick tune ADDRESS`: a search on a running service under its own load.
//! Promises: a line for each trial; the knobs are as before in the end, or with `--apply` the best ones, and the report
//! says which; energy is called measured or modelled.

use std::path::Path;

use flick_check::counted;
use flick_tune::Machine;
use flick_tune::machine::NOMINAL_GHZ;
use serde::Serialize;

use super::fitted::FittedModel;
use super::kernel::{KernelKnob, KernelKnobName, TURNED_MAX, before, set_all};
use super::live::{LiveService, Meters};
use super::rapl::Rapl;
use super::restore::{KnobWatcher, Restored};
use super::target::{KnobSetting, ObservedMoment, TunedService};
use super::tree::Tree;
use super::trials::{PAIRS, SearchPlan, SearchResult, TriedSetting, search};
use super::{Goal, Tune};
use crate::commands::load::values::Bound;
use crate::commands::run::admin::read_token;
use crate::console::sayln;
use crate::failure::{Failure, Outcome};
use crate::settings::file::edit;

/// The result for programs.
#[derive(Serialize)]
struct ServiceReport<'a> {
    service: &'a str,
    energy: &'static str,
    percentile: &'static str,
    sla_us: u64,
    #[serde(flatten)]
    result: &'a SearchResult,
    /// The knobs are those of `best` now; without it, they are those of `present`.
    is_applied: bool,
}

/// A service that is tuned, and what of the kernel with it.
struct Target {
    service: TunedService,
    first: ObservedMoment,
    kernel: Vec<KernelKnob>,
    /// The setting in the beginning.
    present: KnobSetting,
}

/// Searches by trials, or chooses by the model of an earlier search; restores or applies.
pub(super) fn run(tune: &Tune, admin: &flick_admin::Address) -> Outcome {
    let plan = plan(tune)?;
    let token = tune.token_file.as_deref().map(read_token).transpose()?;
    let (service, first) = chosen(admin.to_string(), token, tune.service.as_deref())?;
    let kernel = turned(tune, &service)?;
    let present = KnobSetting { kernel: before(&kernel), ..first.knobs() };
    let target = Target { service, first, kernel, present };
    if let Some(path) = &tune.settings {
        // Before the search, which takes minutes.
        edit::limits_text(path, &present.settings()).map_err(Failure::failed)?;
    }
    let Some(path) = tune.model_file() else { return search_by_trials(tune, plan, target).map(drop) };
    if let Some(model) = FittedModel::read(path).map_err(Failure::failed)? {
        return choose_by_model(tune, plan, &target, &model);
    }
    FittedModel::check_target(path).map_err(Failure::failed)?;
    search_by_trials(tune, plan, target)?.write(path).map_err(Failure::failed)
}

/// Chooses by a model, without a service.
pub(super) fn predict(tune: &Tune, path: &Path) -> Outcome {
    let plan = plan(tune)?;
    let model = FittedModel::read(path).map_err(Failure::failed)?;
    let model = model.ok_or_else(|| {
        let shown = path.display();
        Failure::failed(format!(
            "there is no model {shown}: a search writes it, `flick tune ADDRESS --model {shown}`"
        ))
    })?;
    let what = cost_name(plan.goal, plan.sla);
    let choice = model.choose(plan).map_err(Failure::failed)?;
    sayln!("{}", if tune.json { super::json(&choice)? } else { choice.text(what) }.trim_end());
    Ok(())
}

/// The plan of a search, as far as the command line says it.
fn plan(tune: &Tune) -> Result<SearchPlan, Failure> {
    let sla = tune.sla.ok_or_else(|| Failure::usage("the latency to keep is missing: `--sla p99:500us`"))?;
    let (goal, budget, seed) = (tune.goal, tune.budget, tune.seed);
    Ok(SearchPlan { sla, goal, budget, seed, is_measured: false, shares_threads: false, kernel: Vec::new() })
}

/// Chooses by a model, and applies.
fn choose_by_model(tune: &Tune, plan: SearchPlan, target: &Target, model: &FittedModel) -> Outcome {
    let Target { service, kernel, present, .. } = target;
    if model.service != service.name {
        let text = format!("the model is of {}, and not of {}", model.service, service.name);
        return Err(Failure::failed(text));
    }
    let names = model.present().kernel.names();
    if names != present.kernel.names() {
        let names: Vec<&str> = names.into_iter().map(KernelKnobName::text).collect();
        let help = if names.is_empty() {
            "without --kernel".to_owned()
        } else {
            format!("--kernel {}", names.join(","))
        };
        return Err(Failure::usage(format!("the model has other knobs of the kernel: {help}")));
    }
    let what = cost_name(plan.goal, plan.sla);
    let mut choice = model.choose(plan).map_err(Failure::failed)?;
    let then = choice.best.map(|best| best.knobs).filter(|best| tune.apply && best != present);
    let mut state = String::new();
    if let Some(then) = then {
        let applied = service.set(&then).and_then(|()| set_all(kernel, then.kernel));
        if let Err(error) = applied {
            let restored = service.set(present).and(set_all(kernel, present.kernel));
            let outcome = restored.err().unwrap_or_else(|| "the knobs are as before".to_owned());
            return Err(Failure::failed(format!("cannot apply the choice: {error}; {outcome}")));
        }
        choice.is_applied = true;
        state = after(service, then, Some(tune.settings.as_deref()), Ok(Restored::Done))
            .map_err(Failure::failed)?;
    }
    let text = if tune.json { super::json(&choice)? } else { format!("{}{state}", choice.text(what)) };
    sayln!("{}", text.trim_end());
    Ok(())
}

/// Searches by trials, restores or applies, and returns the model of the trials.
fn search_by_trials(tune: &Tune, plan: SearchPlan, target: Target) -> Result<FittedModel, Failure> {
    let Target { service, first, kernel, present } = target;
    let rapl = if service.is_local() {
        Rapl::open(&tune.root)
    } else {
        Err("the service runs on another machine".to_owned())
    };
    let plan = SearchPlan {
        is_measured: rapl.is_ok(),
        shares_threads: first.shares_threads(),
        kernel: kernel.iter().map(|knob| (knob.name, knob.values())).collect(),
        ..plan
    };
    let sla = plan.sla;
    let energy = if plan.is_measured { "measured" } else { "modelled" };
    if !tune.json {
        heading(tune, &service, &plan, rapl.as_ref().err());
    }
    let core_watts = Machine::published().running_core_watts(NOMINAL_GHZ);
    let meters = Meters { sla, dwell: tune.dwell.0, rapl: rapl.ok(), core_watts };
    let mut watcher = KnobWatcher::start(&service, &kernel, present)?;
    let mut show = |number: &str, tried: &TriedSetting| {
        if !tune.json {
            sayln!("{}", row(number, tried, plan.requests_min()));
        }
    };
    let mut live = LiveService::new(&service, &mut watcher, &kernel, first, meters);
    let found = search(&mut live, &plan, present, &mut show);
    let best = found.as_ref().ok().and_then(|found| found.best).filter(|_| tune.apply);
    if let Some(best) = best {
        watcher.keep(best.knobs);
    }
    let restored = watcher.finish();
    let then = best.map_or(present, |best| best.knobs);
    let state = after(&service, then, best.map(|_| tune.settings.as_deref()), restored);
    let found = match (found, state) {
        (Ok(found), Ok(state)) => {
            if tune.json {
                let (service, percentile, sla_us) = (service.name.as_str(), sla.name(), sla.latency_us());
                let is_applied = best.is_some();
                let report =
                    ServiceReport { service, energy, percentile, sla_us, result: &found, is_applied };
                sayln!("{}", super::json(&report)?);
            } else {
                sayln!("\n{}{state}", conclusion(&found, sla, tune.goal, energy));
            }
            return Ok(FittedModel::new(&service.name, &plan, &found));
        }
        (Ok(_), Err(state)) => state,
        (Err(error), Ok(state) | Err(state)) => format!("{error}; {state}"),
    };
    Err(Failure::failed(found))
}

/// The quantity that is minimised.
fn cost_name(goal: Goal, sla: Bound) -> &'static str {
    match goal {
        Goal::Latency => sla.name(),
        Goal::Energy => "energy per request",
    }
}

/// The knobs of the kernel that are to be turned. Errors: one does not exist here, or not for this user.
fn turned(tune: &Tune, service: &TunedService) -> Result<Vec<KernelKnob>, Failure> {
    if tune.kernel.len() > TURNED_MAX {
        return Err(Failure::usage(format!("a search turns at most {TURNED_MAX} knobs of the kernel")));
    }
    if !tune.kernel.is_empty() && !service.is_local() {
        return Err(Failure::usage("the service runs on another machine, whose kernel has the knobs"));
    }
    let open = |name: &KernelKnobName| {
        let knob = KernelKnob::open(&Tree(&tune.root), *name, tune.interface.as_deref());
        let knob = knob.and_then(|knob| knob.refusal().map_or(Ok(knob), Err));
        // A driver may have a value that it does not let change: better known before the search.
        let knob = knob.and_then(|knob| knob.restore().map(|()| knob));
        knob.map_err(|why| Failure::failed(format!("cannot turn {}: {why}", name.text())))
    };
    let mut names = tune.kernel.clone();
    names.sort_unstable();
    names.dedup();
    names.iter().map(open).collect()
}

/// The service of this name, or the only one.
fn chosen(
    admin: String,
    token: Option<String>,
    name: Option<&str>,
) -> Result<(TunedService, ObservedMoment), Failure> {
    let admin = from_everywhere(admin);
    let address: flick_admin::Address = admin.parse().map_err(Failure::usage)?;
    let state = flick_admin::client::state(&address, token.as_deref())
        .map_err(|error| Failure::failed(format!("cannot read the state at {admin}: {error}")))?;
    let names: Vec<&str> = state.services.iter().map(|service| service.name.as_str()).collect();
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => (*only).to_owned(),
        (None, _) => {
            let text =
                format!("the process runs several services; choose one: --service {}", names.join(" | "));
            return Err(Failure::usage(text));
        }
    };
    let first = ObservedMoment::of(&name, state).map_err(Failure::failed)?;
    Ok((TunedService { admin, token, name }, first))
}

/// An address that means the same in every directory: the process that restores knobs works in another one.
fn from_everywhere(admin: String) -> String {
    let absolute = admin.strip_prefix("unix:").and_then(|path| std::path::absolute(path).ok());
    absolute.and_then(|path| path.to_str().map(|path| format!("unix:{path}"))).unwrap_or(admin)
}

/// Describes the knobs after a search, and writes what is `applied` to the settings file, if one is given.
///
/// Errors: they are not as they should be, or not written.
fn after(
    service: &TunedService,
    then: KnobSetting,
    applied: Option<Option<&Path>>,
    restored: Result<Restored, String>,
) -> Result<String, String> {
    let name = &service.name;
    let restored =
        restored.map_err(|error| format!("the knobs of {name} may not be as before ({then}): {error}"))?;
    match (restored, applied) {
        (Restored::Done, Some(Some(path))) => {
            let written = edit::set_limits(path, &then.settings());
            written.map_err(|error| format!("applied to {name}, until its next reload or start; {error}"))?;
            Ok(format!("applied to {name}, and written to {}", path.display()))
        }
        (Restored::Done, Some(None)) => {
            let lines = then.settings().map(|(key, value)| format!("\n  {key} = \"{value}\""));
            let lines = lines.concat();
            Ok(format!(
                "applied to {name}, until its next reload or start; write to [limits] of flick.toml:{lines}"
            ))
        }
        (restored, _) => restored.sentence(name, &then),
    }
}

fn heading(tune: &Tune, service: &TunedService, plan: &SearchPlan, no_rapl: Option<&String>) {
    let goal = match (plan.goal, plan.is_measured) {
        (Goal::Latency, _) => "latency",
        (Goal::Energy, true) => "energy (measured by RAPL: all that runs on this machine)",
        (Goal::Energy, false) => "CPU time, from which energy is modelled",
    };
    let trials = tune.budget as usize + 2 * PAIRS;
    let seconds = trials as f64 * tune.dwell.0.as_secs_f64() * 1.1;
    sayln!("{} at {}, {}, for {goal}", service.name, service.admin, plan.sla);
    let trials = counted(tune.budget, "trial");
    sayln!("{trials} and {PAIRS} pairs of {:?} each: about {seconds:.0} s", tune.dwell.0);
    if let Some(reason) = no_rapl {
        sayln!("energy is modelled: {reason}");
    }
    if plan.shares_threads {
        sayln!(
            "busy_poll and batch_delay_max have no effect where services share threads, and are not turned"
        );
    }
    let energy = if plan.is_measured { "measured" } else { "modelled" };
    sayln!(
        "\n{:>7} {:>9} {:>11} {:>10} {:>10} {:>8} {:>8} {:>7} {:>6} {:>22}",
        "trial",
        "busy-poll",
        "batch-delay",
        "time-slice",
        "requests/s",
        "p50",
        plan.sla.name(),
        "CPU/req",
        "cores",
        format!("J/M requests ({energy})")
    );
}

fn row(number: &str, tried: &TriedSetting, requests_min: u64) -> String {
    let TriedSetting { knobs, result, keeps_sla } = tried;
    let [poll, delay, slice] = knobs.settings().map(|(_, value)| value);
    let verdict = match keeps_sla {
        true => "",
        false if result.requests < requests_min => "  too few requests",
        false => "  over SLA",
    };
    let errors =
        if result.errors > 0.0 { format!("  {:.2} % errors", 100.0 * result.errors) } else { String::new() };
    let kernel = knobs.kernel.values().into_iter();
    let kernel: String =
        kernel.map(|(name, value)| format!("  {} {value}{}", name.text(), name.unit())).collect();
    format!(
        "{number:>7} {poll:>9} {delay:>11} {slice:>10} {:>10.0} {:>6.0}us {:>6.0}us {:>5.1}us {:>6.2} {:>22.2}{kernel}{verdict}{errors}",
        result.requests_per_s,
        result.p50_us,
        result.bounded_us,
        result.cpu_us_per_request,
        result.cores,
        result.joules_per_million_requests
    )
}

fn conclusion(found: &SearchResult, sla: Bound, goal: Goal, energy: &str) -> String {
    let mut out = String::new();
    if !found.present.keeps_sla {
        out.push_str(&format!("the present setting does not keep {sla}\n"));
    }
    let compared = match (&found.best, &found.lost) {
        (Some(best), _) => {
            out.push_str(&format!("- {}\n+ {}\n", found.present.knobs, best.knobs));
            best
        }
        (None, Some(lost)) => {
            out.push_str(&format!("no setting is better beyond the noise; the best was {}\n", lost.knobs));
            lost
        }
        (None, None) if found.trials.iter().any(|tried| tried.keeps_sla) => {
            return out + "the present setting is the best\n";
        }
        (None, None) => return format!("{out}no setting that was tried keeps {sla}\n"),
    };
    let what = match (goal, energy) {
        (Goal::Latency, _) => sla.name(),
        (Goal::Energy, "measured") => "energy (measured) per request",
        (Goal::Energy, _) => "CPU time, and energy (modelled), per request",
    };
    let percent = |ratio: f64| format!("{:+.0} %", 100.0 * (ratio - 1.0));
    let [low, middle, high] = [0, PAIRS / 2, PAIRS - 1].map(|index| percent(found.ratios[index]));
    let rate = percent(compared.result.requests_per_s / found.present.result.requests_per_s);
    let [kept, kept_best] = found.pairs_kept;
    out.push_str(&format!(
        "{what}: {middle} ({low} to {high} in {PAIRS} pairs), requests/s {rate}\n\
         pairs that kept the SLA: {kept_best}, with the present setting {kept}\n"
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::from_everywhere;

    #[test]
    fn knobs_of_a_service_at_a_relative_path_were_not_restored() {
        let here = std::env::current_dir().expect("the directory of the test exists");
        let relative = from_everywhere("unix:run/admin.sock".to_owned());
        assert_eq!(relative, format!("unix:{}/run/admin.sock", here.display()));
        for same in ["unix:/run/admin.sock", "unix:", "127.0.0.1:8080"] {
            assert_eq!(from_everywhere(same.to_owned()), same);
        }
    }
}
