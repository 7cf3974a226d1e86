//! A process that puts the knobs of a service and of the kernel back when the process that turns them ends, however it
//! ends.
//! Promises: the knobs are as before once the input of this process has ended, which a normal end, a panic and any
//! signal bring about, SIGKILL included; or when nothing has arrived for `SILENCE_MAX`, as of a stopped process.
//! Values of the service that the search has not set are not overwritten: someone else has set them, such as a reload.
//! Those of the kernel are, as drivers round what is set.
//! Not here: the end of this process by SIGKILL, or with the whole control group; the search stops if it notices that.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::DWELL_MAX;
use super::kernel::{KernelKnob, set_all};
use super::target::{KnobSetting, TunedService};
use crate::failure::{Failure, Outcome};

/// Time without a line, in which any trial ends.
const SILENCE_MAX: Duration = DWELL_MAX.saturating_mul(4);

/// Time for which a service that does not answer is tried again.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);

/// Time after which a service that refuses connections has ended. A hot restart refuses none.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Pause between two attempts, and before the values are read again: a change that the killed process had sent may
/// arrive behind the one that restores.
const PAUSE: Duration = Duration::from_millis(50);

/// The line that says that the process is ready.
const READY: &str = "ready";

/// The first line to the process: the knobs that it restores.
#[derive(Debug, Serialize, Deserialize)]
struct WatchedKnobs {
    service: TunedService,
    kernel: Vec<KernelKnob>,
}

/// A further line to the process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct KnobStep {
    /// The next setting, which is set behind this line.
    now: KnobSetting,
    /// The setting to leave in the end.
    then: KnobSetting,
    /// The search ends by itself, and reports what became of the knobs.
    is_end: bool,
}

/// Outcome of restoring knobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Restored {
    /// They are as they should be.
    Done,
    /// Someone else has set them to these values.
    Left(KnobSetting),
    /// The service has ended, and its knobs with it.
    Gone,
}

impl Restored {
    /// Describes the knobs of a service that should be `then`. Errors: they are not.
    pub(super) fn sentence(&self, name: &str, then: &KnobSetting) -> Result<String, String> {
        match self {
            Self::Done => Ok(format!("the knobs of {name} are as before: {then}")),
            Self::Left(values) => {
                Err(format!("something else has set the knobs of {name} to {values}, which stay"))
            }
            Self::Gone => Err(format!("{name} has ended: its next start has the knobs of its settings")),
        }
    }
}

/// The watcher, as the process that turns knobs sees it.
#[derive(Debug)]
pub(super) struct KnobWatcher {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    then: KnobSetting,
}

impl KnobWatcher {
    /// Starts the watcher of a service whose knobs are `then` in the end, and waits until it is ready.
    pub(super) fn start(
        service: &TunedService,
        kernel: &[KernelKnob],
        then: KnobSetting,
    ) -> Result<Self, Failure> {
        let failed =
            |error| Failure::failed(format!("cannot start the process that restores knobs: {error}"));
        let mut command = Command::new("/proc/self/exe");
        command.args(["tune", "--watcher"]).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take().expect("stdin is piped");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut watcher = Self { child, input, output, then };
        let watched = WatchedKnobs { service: service.clone(), kernel: kernel.to_vec() };
        watcher.send(&watched).map_err(Failure::failed)?;
        match watcher.line() {
            Ok(line) if line == READY => Ok(watcher),
            _ => Err(Failure::failed("the process that restores knobs has ended")),
        }
    }

    /// Says what is set next.
    ///
    /// Errors: the watcher has ended. Nothing must be set then.
    pub(super) fn announce(&mut self, now: KnobSetting) -> Result<(), String> {
        self.send(&KnobStep { now, then: self.then, is_end: false })
    }

    /// Changes what the knobs are in the end.
    pub(super) fn keep(&mut self, then: KnobSetting) {
        self.then = then;
    }

    /// Ends the watcher. Returns what became of the knobs.
    pub(super) fn finish(mut self) -> Result<Restored, String> {
        let then = self.then;
        self.send(&KnobStep { now: then, then, is_end: true })?;
        let line = self.line();
        drop(self.input);
        // Its result was read; its status says nothing more.
        let _ = self.child.wait();
        serde_json::from_str(&line?).map_err(|_| ended())?
    }

    fn send(&mut self, line: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_string(line).expect("strings and numbers are valid JSON");
        text.push('\n');
        self.input.write_all(text.as_bytes()).map_err(|_| ended())
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|_| ended())?;
        Ok(line.trim_end().to_owned())
    }
}

fn ended() -> String {
    "the process that restores knobs has ended; it restores them unless it was killed".to_owned()
}

/// Runs the watcher: reads lines until its input ends, then restores.
pub(super) fn watch() -> Outcome {
    // The signals of a terminal end the search, not this process. A leader of a group cannot leave it.
    let _ = rustix::process::setsid();
    let mut lines = BufReader::new(std::io::stdin()).lines().map_while(Result::ok);
    let watched = lines.next().and_then(|line| serde_json::from_str::<WatchedKnobs>(&line).ok());
    let watched = watched.ok_or_else(|| Failure::usage("`flick tune` starts this process itself"))?;
    let WatchedKnobs { service, kernel } = watched;
    // The reader of these lines may be gone.
    let report = |line: &str| drop(writeln!(std::io::stdout(), "{line}"));
    report(READY);
    let (sender, steps) = mpsc::channel();
    std::thread::spawn(move || {
        let steps = lines.map_while(|line| serde_json::from_str::<KnobStep>(&line).ok());
        // Fails once the watcher restores.
        steps.take_while(|step| sender.send(*step).is_ok()).for_each(drop);
    });
    let mut seen: Vec<KnobSetting> = Vec::new();
    let mut last: Option<KnobStep> = None;
    let is_silent = loop {
        match steps.recv_timeout(SILENCE_MAX) {
            Ok(step) => {
                seen.push(step.now);
                last = Some(step);
                if step.is_end {
                    break false;
                }
            }
            Err(error) => break error == RecvTimeoutError::Timeout,
        }
    };
    let Some(last) = last else { return Ok(()) };
    let of_kernel = set_all(&kernel, last.then.kernel);
    let restored = restore(&service, &seen, last.then);
    let restored = of_kernel.and(restored);
    if last.is_end {
        report(&serde_json::to_string(&restored).expect("strings and numbers are valid JSON"));
        return Ok(());
    }
    let why = if is_silent { "has stopped" } else { "was ended" };
    let sentence = match restored {
        Ok(restored) => restored.sentence(&service.name, &last.then),
        Err(error) => Err(format!("its knobs are not restored: {error}")),
    };
    match sentence {
        Ok(sentence) => {
            anstream::eprintln!("flick tune {why}; {sentence}");
            Ok(())
        }
        Err(sentence) => Err(Failure::failed(format!("flick tune {why}; {sentence}"))),
    }
}

/// Sets the knobs to `then` if they have one of the values in `seen`.
fn restore(service: &TunedService, seen: &[KnobSetting], then: KnobSetting) -> Result<Restored, String> {
    let start = Instant::now();
    let mut is_confirmed = false;
    loop {
        let result = service.observe().and_then(|observed| {
            let values = observed.knobs();
            if values.has_tunables_of(&then) {
                return Ok(Some(Restored::Done));
            }
            if !seen.iter().any(|seen| seen.has_tunables_of(&values)) {
                return Ok(Some(Restored::Left(values)));
            }
            service.set(&then).map(|()| None)
        });
        match result {
            Ok(Some(Restored::Done)) if !is_confirmed => is_confirmed = true,
            Ok(Some(restored)) => return Ok(restored),
            Err(_) if start.elapsed() > REFUSAL_TIME_MAX && service.is_gone() => return Ok(Restored::Gone),
            Err(error) if start.elapsed() > RETRY_TIME_MAX => return Err(error),
            Ok(None) if start.elapsed() > RETRY_TIME_MAX => return Err("others set them, too".to_owned()),
            Ok(None) | Err(_) => is_confirmed = false,
        }
        std::thread::sleep(PAUSE);
    }
}
