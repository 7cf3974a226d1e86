//! `flick test`: runs the scenarios beside a program in the simulator, with both engines and many seeds of the network.
//! Promises: the same seed gives the same run; an error in one scenario or program does not stop the others; a scenario
//! that fails is shown with its line, its seed, a sequence diagram, and the command that runs it again.
//! Not here: real sockets and real time; `flick run` has those.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use flick_compiler::{EngineKind, Executable, Input, compile};
use flick_ir::Interpreter;
use flick_testkit::scenario::stage::{QUIET_SEED, Simulated};
use flick_testkit::scenario::{Scenario, parse, play};
use flick_testkit::service::Subject;

use crate::failure::{Failure, Outcome};
use crate::report;

/// Depth of the search for scenarios below a directory.
const DEPTH_MAX: usize = 4;
/// Scenarios of one call.
const SCENARIOS_MAX: usize = 10_000;
/// Runs of one scenario.
const SEEDS_MAX: u64 = 10_000_000;

/// Runs scenarios in the simulator.
#[derive(Debug, Args)]
pub struct Test {
    /// Scenarios (`.scn`), programs, or directories with both. [default: the current directory]
    paths: Vec<PathBuf>,
    /// Run with this engine only. [default: both]
    #[arg(long)]
    engine: Option<EngineKind>,
    /// Number of seeds per scenario. [default: what the scenario says]
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    seeds: Option<u64>,
    /// Run with this seed only. Seed 1 splits and delays nothing.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// A scenario and the program that it tests.
struct Case {
    path: PathBuf,
    program: PathBuf,
    scenario: Scenario,
}

impl Test {
    /// Runs the scenarios and prints the results. Exits with 1 if one fails.
    pub fn run(self) -> Outcome {
        let here = [PathBuf::from(".")];
        let roots = if self.paths.is_empty() { &here[..] } else { &self.paths };
        let mut found = Vec::new();
        for root in roots {
            find(root, DEPTH_MAX, &mut found)?;
        }
        found.sort();
        found.dedup();
        if found.is_empty() {
            return Err(Failure::failed(
                "no scenario found; write a file that ends in `.scn` beside the program, for example\n  \
                 client a  sends \"ping\\r\\n\"\n  backend 0 expects \"ping\\r\\n\", sends \"pong\\r\\n\"\n  \
                 client a  expects \"pong\\r\\n\"",
            ));
        }
        let mut by_program: BTreeMap<(PathBuf, Option<String>), Vec<Case>> = BTreeMap::new();
        let (mut passed, mut failed) = (0_usize, 0_usize);
        for path in found {
            match read(path) {
                Ok(case) => {
                    let about = (case.program.clone(), case.scenario.process.clone());
                    by_program.entry(about).or_default().push(case);
                }
                Err(failure) => {
                    failure.report();
                    failed += 1;
                }
            }
        }
        for ((program, process), cases) in &by_program {
            crate::console::sayln!("{} scenario(s) of {}", cases.len(), program.display());
            match self.subjects(program, process.as_deref()) {
                Ok(subjects) => {
                    let succeeded = cases.iter().filter(|case| self.check(case, &subjects)).count();
                    passed += succeeded;
                    failed += cases.len() - succeeded;
                }
                Err(failure) => {
                    failure.report();
                    failed += cases.len();
                }
            }
        }
        crate::console::sayln!("{passed} passed, {failed} failed");
        if failed == 0 { Ok(()) } else { Err(Failure::reported()) }
    }

    /// Compiles the process named `process`, or the first one, for each engine.
    fn subjects(
        &self,
        program: &Path,
        process: Option<&str>,
    ) -> Result<Vec<(&'static str, Subject)>, Failure> {
        let only = self.engine.unwrap_or(EngineKind::Native);
        let compiled = compile(&Input::file(program)?, only)?;
        report::warnings(&compiled.warnings, &compiled.sources);
        let mut executables = compiled.executables;
        let is_wanted = |found: &Executable| process.is_none_or(|name| found.module.program.name == name);
        let Some(found) = executables.iter().position(is_wanted) else {
            let names: Vec<&str> =
                executables.iter().map(|found| found.module.program.name.as_str()).collect();
            return Err(Failure::failed(format!(
                "{} has no process `{}`; its processes are: {}",
                program.display(),
                process.unwrap_or_default(),
                names.join(", ")
            )));
        };
        let executable = executables.swap_remove(found);
        let program = executable.program();
        let mut subjects = Vec::new();
        if only == EngineKind::Native {
            subjects.push(("compiled", Subject { program: Arc::clone(&program), engine: executable.engine }));
        }
        if self.engine != Some(EngineKind::Native) {
            let engine = Arc::new(Interpreter::new(executable.module));
            subjects.push(("interpreted", Subject { program, engine }));
        }
        Ok(subjects)
    }

    /// Runs one scenario with all its seeds. Returns whether every run passed.
    fn check(&self, case: &Case, subjects: &[(&'static str, Subject)]) -> bool {
        let name = case.path.display();
        let seeds = match self.seed {
            Some(seed) => seed..=seed,
            None => {
                let count = self.seeds.unwrap_or(case.scenario.seeds).clamp(1, SEEDS_MAX);
                QUIET_SEED..=QUIET_SEED + count - 1
            }
        };
        let count = seeds.end() - seeds.start() + 1;
        let started = Instant::now();
        for seed in seeds {
            for (engine, subject) in subjects {
                let stage = Simulated::with_seed(&case.scenario, subject, seed);
                let outcome = stage.and_then(|mut stage| play(&case.scenario, &mut stage));
                if let Err(what) = outcome {
                    crate::console::sayln!("  {name} ... FAILED with seed {seed} ({engine})");
                    for line in what.lines() {
                        crate::console::sayln!("    {line}");
                    }
                    crate::console::sayln!("    again: flick test {name} --seed {seed}");
                    return false;
                }
            }
        }
        let seeds = if count == 1 { String::new() } else { format!(", {count} seeds") };
        crate::console::sayln!("  {name} ... ok ({:.1} ms{seeds})", started.elapsed().as_secs_f64() * 1e3);
        true
    }
}

/// Finds scenarios: the file itself, those beside a program, those in a directory and below.
fn find(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot read {}: {error}", path.display()));
    let ends_in = |ending: &str| path.extension().is_some_and(|known| known == ending);
    if path.metadata().map_err(failed)?.is_dir() {
        let entries = path.read_dir().map_err(failed)?;
        for entry in entries {
            let entry = entry.map_err(failed)?.path();
            let is_scenario = entry.extension().is_some_and(|ending| ending == "scn");
            if is_scenario || entry.is_dir() && !entry.is_symlink() && depth > 0 {
                find(&entry, depth - 1, found)?;
            }
        }
        return Ok(());
    }
    if ends_in("flick") {
        for scenario in beside(path, "scn")? {
            // One that cannot be read may be about this program; running it reports the error.
            if read(scenario.clone()).map_or(true, |case| case.program == *path) {
                found.push(scenario);
            }
        }
        return Ok(());
    }
    if !ends_in("scn") {
        return Err(Failure::failed(format!(
            "{} is neither a scenario (`.scn`) nor a program (`.flick`)",
            path.display()
        )));
    }
    found.push(path.to_owned());
    if found.len() > SCENARIOS_MAX {
        return Err(Failure::failed(format!("there are more than {SCENARIOS_MAX} scenarios; name fewer")));
    }
    Ok(())
}

/// Lists the files with an extension in the directory of `path`.
fn beside(path: &Path, ending: &str) -> Result<Vec<PathBuf>, Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed =
        |error: std::io::Error| Failure::failed(format!("cannot read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let file = entry.map_err(failed)?.file_name();
        let file = path.with_file_name(file);
        if file.extension().is_some_and(|known| known == ending) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a scenario and finds its program.
fn read(path: PathBuf) -> Result<Case, Failure> {
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
    let scenario = parse(&text).map_err(|error| Failure::failed(format!("{}, {error}", path.display())))?;
    let program = match &scenario.service {
        Some(service) => path.with_file_name(service),
        None => only_service(&path)?,
    };
    Ok(Case { path, program, scenario })
}

/// Finds the one program with a process beside a scenario.
fn only_service(path: &Path) -> Result<PathBuf, Failure> {
    let files = beside(path, "flick")?;
    let has_process = |file: &&PathBuf| {
        let text = std::fs::read_to_string(file);
        text.is_ok_and(|text| flick_syntax::parse(&text).file().procs().next().is_some())
    };
    let services: Vec<&PathBuf> = files.iter().filter(has_process).collect();
    match services.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Failure::failed(format!("there is no program with a process beside {}", path.display()))),
        several => Err(Failure::failed(format!(
            "{} programs are beside {}; name one in the first line of the scenario: `service {}`",
            several.len(),
            path.display(),
            several[0].file_name().unwrap_or_default().to_string_lossy()
        ))),
    }
}
