//! The results of `flick load`, as text and as JSON.
//! Promises: both have the same figures; what did not occur is left out of the text.

use std::fmt::Write;
use std::time::Duration;

use flick_check::counted;
use flick_load::http::HttpVersion;
use flick_load::load::{Gaps, LoadConfig, LoadProtocol, LoadReport, RateTrial};
use serde_json::{Map, Value, json};

use super::values::Bound;
use crate::failure::{Failure, Outcome};

/// Processor time of the generator, as a share of that of its threads, above which its figures may be its own limit.
const BUSY_MIN: f64 = 0.95;

/// Replies, as a share of the requests that were due, below which a load was slower than its rate: its latencies are
/// not those of the rate.
const REACHED_MIN: f64 = 0.95;

/// A finished load.
pub struct Measured {
    /// Its URL.
    pub url: String,
    /// Its settings.
    pub config: LoadConfig,
    /// Its figures.
    pub report: LoadReport,
    /// Cores that the generator used.
    pub cpu: f64,
    /// Whether a signal has ended it.
    pub is_stopped: bool,
    /// The results of its agents.
    pub agents: Vec<AgentResult>,
}

/// The results of an agent.
pub struct AgentResult {
    /// Its address.
    pub address: String,
    /// The figures of its load, as JSON.
    pub found: Value,
}

impl AgentResult {
    fn replies_per_s(&self) -> f64 {
        self.found["replies_per_second"].as_f64().unwrap_or(0.0)
    }

    fn due_per_s(&self) -> f64 {
        self.found["due_per_second"].as_f64().unwrap_or(0.0)
    }

    fn faults(&self) -> u64 {
        let faults = self.found["faults"].as_object();
        faults.into_iter().flat_map(Map::values).filter_map(Value::as_u64).sum()
    }
}

impl Measured {
    /// Replies per second, of agents too.
    pub fn replies_per_s(&self) -> f64 {
        self.report.replies_per_s + self.agents.iter().map(AgentResult::replies_per_s).sum::<f64>()
    }

    /// Whether replies came as fast as requests were due, those of agents too. The rate does not say how many are due
    /// in the time of a load: of independent clients, 100 are 80 to 120. By the root of their number, more or fewer of
    /// them wait for a reply at its end than at its start.
    pub fn keeps_up(&self) -> bool {
        let due = self.report.due_per_s + self.agents.iter().map(AgentResult::due_per_s).sum::<f64>();
        let seconds = self.report.elapsed.as_secs_f64();
        let spread = if seconds > 0.0 { (due / seconds).sqrt() } else { 0.0 };
        self.replies_per_s() + spread >= REACHED_MIN * due
    }

    /// Faults, of agents too.
    pub fn faults(&self) -> u64 {
        self.report.faults() + self.agents.iter().map(AgentResult::faults).sum::<u64>()
    }

    /// Fails if a request went wrong, or none was answered.
    pub fn verdict(&self) -> Outcome {
        if self.faults() > 0 {
            return Err(Failure::failed(format!("{} requests or connections went wrong", self.faults())));
        }
        if self.replies_per_s() > 0.0 {
            return Ok(());
        }
        let why = if self.is_stopped && !self.config.warmup.is_zero() {
            "the load was stopped in its warm-up: no request was measured"
        } else {
            "no request was answered"
        };
        Err(Failure::failed(why))
    }

    /// Says on standard error what makes the figures doubtful.
    pub fn warn(&self) {
        let threads = self.config.threads as f64;
        if self.config.rate_per_s.is_none() && self.cpu >= BUSY_MIN * threads {
            anstream::eprintln!(
                "note: the generator is busy all the time, and may be slower than the server; use more --threads"
            );
        }
        if self.report.replies > 0 && !self.keeps_up() {
            anstream::eprintln!("note: the rate was not reached; latencies grow with the time of the load");
        }
    }

    /// The results as text.
    pub fn text(&self) -> String {
        let report = &self.report;
        let (counts, latency) = (&report.counts, &report.latency);
        let seconds = report.elapsed.as_secs_f64();
        let rate = |bytes: u64| if seconds > 0.0 { bytes as f64 / seconds / 1e6 } else { 0.0 };
        let mut text = format!("{}: {}\n", self.url, self.in_words());
        let mut line = |name: &str, rest: String| writeln!(text, "{name:<10} {rest}").expect("text grows");
        line(
            "requests",
            format!("{:.0}/s ({} replies in {seconds:.2} s)", report.replies_per_s, report.replies),
        );
        // A load without a good reply has no latency.
        if latency.max_us > 0 {
            let figures = [
                ("mean", latency.mean_us.round() as u64),
                ("p50", latency.p50_us),
                ("p90", latency.p90_us),
                ("p99", latency.p99_us),
                ("p99.9", latency.p999_us),
                ("max", latency.max_us),
            ];
            line("latency", figures.map(|(name, us)| format!("{name} {}", time(us))).join("  "));
        }
        line(
            "bytes",
            format!(
                "{:.2} MB/s received, {:.2} MB/s sent",
                rate(counts.received_bytes),
                rate(counts.sent_bytes)
            ),
        );
        let statuses: Vec<String> =
            report.http_statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        if !statuses.is_empty() {
            line("status", statuses.join("  "));
        }
        if counts.misses > 0 {
            line("misses", counts.misses.to_string());
        }
        let faults: Vec<String> =
            self.named_faults().into_iter().map(|(name, count)| format!("{name}: {count}")).collect();
        if !faults.is_empty() {
            line("faults", format!("{} (the warm-up included)", faults.join("  ")));
        }
        if let Some(error) = &report.first_error {
            line("", format!("the first error reply: {error}"));
        }
        if let Some(wrong) = &report.first_wrong {
            line("", format!("the first wrong reply: {wrong}"));
        }
        if !self.agents.is_empty() {
            let one = |agent: &AgentResult| {
                format!("{} {:.0}/s, {} faults", agent.address, agent.replies_per_s(), agent.faults())
            };
            line("agents", self.agents.iter().map(one).collect::<Vec<_>>().join("; "));
            line("in all", format!("{:.0}/s", self.replies_per_s()));
        }
        line("generator", format!("{:.2} cores, {} connections opened", self.cpu, counts.connects));
        text
    }

    /// The results as JSON.
    pub fn json(&self) -> Value {
        let (report, config) = (&self.report, &self.config);
        let (counts, latency) = (&report.counts, &report.latency);
        let by_name = |pairs: Vec<(String, u64)>| -> Map<String, Value> {
            pairs.into_iter().map(|(name, count)| (name, count.into())).collect()
        };
        let statuses = report.http_statuses.iter().map(|(status, count)| (status.to_string(), *count));
        let agents =
            self.agents.iter().map(|agent| json!({"address": agent.address, "results": agent.found}));
        json!({
            "url": self.url,
            "protocol": protocol(config),
            "connections": config.connections,
            "threads": config.threads,
            "pipeline": config.depth,
            "connection_per_request": config.connection_per_request,
            "rate_per_second": config.rate_per_s,
            "stopped": self.is_stopped,
            "seconds": report.elapsed.as_secs_f64(),
            "replies": report.replies,
            "replies_per_second": report.replies_per_s,
            "due_per_second": report.due_per_s,
            "received_bytes": counts.received_bytes,
            "sent_bytes": counts.sent_bytes,
            "connections_opened": counts.connects,
            "latency_us": {
                "mean": latency.mean_us,
                "p50": latency.p50_us,
                "p90": latency.p90_us,
                "p99": latency.p99_us,
                "p99.9": latency.p999_us,
                "max": latency.max_us,
            },
            "http_statuses": by_name(statuses.collect()),
            "misses": counts.misses,
            "faults": by_name(self.named_faults()),
            "first_error": report.first_error,
            "first_wrong": report.first_wrong,
            "generator_cores": self.cpu,
            "replies_per_second_in_all": self.replies_per_s(),
            "agents": agents.collect::<Vec<_>>(),
        })
    }

    /// The faults that occurred; the statuses of error replies are among the names, but those of HTTP, which have a
    /// line of their own.
    fn named_faults(&self) -> Vec<(String, u64)> {
        let counts = &self.report.counts;
        let statuses = self.report.errors_by_status();
        let mut faults: Vec<_> =
            statuses.map(|(status, count)| (format!("error ({status})"), count)).collect();
        if faults.is_empty() {
            faults.push(("error replies".to_owned(), counts.errors));
        }
        for (name, count) in [
            ("wrong replies", counts.wrong),
            ("unanswered", counts.lost),
            ("due and not sent", counts.unsent),
            ("lost connections", counts.disconnects),
            ("connections not opened", counts.connect_failures),
        ] {
            faults.push((name.to_owned(), count));
        }
        faults.retain(|(_, count)| *count > 0);
        faults
    }

    fn in_words(&self) -> String {
        let config = &self.config;
        let pace = match (config.rate_per_s, config.gaps) {
            (None, _) => "closed loop".to_owned(),
            (Some(rate), Gaps::Fixed) => format!("open loop of {rate:.0}/s, fixed gaps"),
            (Some(rate), Gaps::Poisson) => format!("open loop of {rate:.0}/s, Poisson"),
            (Some(rate), Gaps::Etc) => format!("open loop of {rate:.0}/s, gaps of ETC"),
        };
        let each = match (config.connection_per_request, config.depth) {
            (true, _) => ", one request each".to_owned(),
            (false, 1) => String::new(),
            (false, depth) => format!(", pipelines of {depth}"),
        };
        format!(
            "{}, {}{each}, {}, {pace}{}",
            protocol(config),
            counted(config.connections, "connection"),
            counted(config.threads, "thread"),
            if self.is_stopped { ", stopped" } else { "" }
        )
    }
}

fn protocol(config: &LoadConfig) -> &'static str {
    match (config.protocol, config.http.version) {
        (LoadProtocol::Http, HttpVersion::Http10) => "HTTP/1.0",
        (LoadProtocol::Http, HttpVersion::Http11) => "HTTP/1.1",
        (LoadProtocol::Text, _) => "memcached text",
        (LoadProtocol::Binary, _) => "memcached binary",
        (LoadProtocol::Meta, _) => "memcached meta",
        (LoadProtocol::Resp, _) => "Redis",
    }
}

/// The line of a trial of a search.
pub fn trial_line(trial: &RateTrial, is_peak: bool, bound: &Bound) -> String {
    let kind = if is_peak { "closed loop" } else { "open loop" };
    let verdict = match (is_peak, trial.is_good) {
        (true, _) => "",
        (false, true) => "  good",
        (false, false) => "  too much",
    };
    format!("{kind:<11}  {:>9.0}/s  {} {}{verdict}", trial.rate_per_s, bound.name(), time(trial.latency_us))
}

/// The result of a search as text.
pub fn search_text(bound: &Bound, best: Option<&RateTrial>) -> String {
    match best {
        Some(best) => {
            format!(
                "{bound}: {:.0} requests/s ({} {})\n",
                best.rate_per_s,
                bound.name(),
                time(best.latency_us)
            )
        }
        None => String::new(),
    }
}

/// The result of a search as JSON.
pub fn search_json(bound: &Bound, best: Option<&RateTrial>, trials: &[RateTrial]) -> String {
    let of = |trial: &RateTrial| {
        json!({
            "rate_per_second": trial.rate_per_s,
            "replies_per_second": trial.replies_per_s,
            "latency_us": trial.latency_us,
            "good": trial.is_good,
        })
    };
    let value = json!({
        "percentile": bound.name(),
        "latency_us_max": bound.latency_us(),
        "best": best.map(of),
        "trials": trials.iter().map(of).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

/// A time in the unit that suits it.
fn time(us: u64) -> String {
    match Duration::from_micros(us) {
        short if us < 1_000 => format!("{} us", short.as_micros()),
        middle if us < 1_000_000 => format!("{:.2} ms", middle.as_secs_f64() * 1e3),
        long => format!("{:.2} s", long.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn measured(report: LoadReport, agents: Vec<AgentResult>) -> Measured {
        let config = LoadConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        Measured { url: String::new(), config, report, cpu: 0.0, is_stopped: false, agents }
    }

    /// Connections of the simulated load, each of which has a reply after this many seconds: 100 a second at most.
    const CONNECTIONS: usize = 10;
    const REPLY_S: f64 = 0.1;

    /// A load of a second, after a warm-up of a second, on a server that takes the same time for every reply.
    fn simulated(seed: u64, rate_per_s: f64) -> LoadReport {
        let (start_s, end_s) = (1.0, 2.0);
        let (mut random, mut due_s) = (seed, 0.0);
        let mut free_s = [0.0; CONNECTIONS];
        let (mut due, mut replies, mut last_s) = (0, 0, end_s);
        while due_s < end_s {
            let taken = free_s.iter_mut().min_by(|a, b| f64::total_cmp(a, b)).expect("there are connections");
            *taken = f64::max(*taken, due_s) + REPLY_S;
            due += u32::from(due_s >= start_s);
            replies += u32::from(*taken >= start_s);
            last_s = f64::max(last_s, *taken);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // A gap of independent clients; the upper bits of this generator are random.
            due_s -= (((random >> 33) + 1) as f64 / (1_u64 << 31) as f64).ln() / rate_per_s;
        }
        LoadReport {
            elapsed: Duration::from_secs_f64(last_s - start_s),
            replies_per_s: f64::from(replies) / (last_s - start_s),
            due_per_s: f64::from(due) / (end_s - start_s),
            ..LoadReport::default()
        }
    }

    #[test]
    fn a_search_at_a_modest_rate_ended_many_times_too_low() {
        let peak = CONNECTIONS as f64 / REPLY_S;
        for seed in 0..16 {
            let mut trial = 0;
            let (best, trials) = flick_load::load::search(|rate| {
                trial += 1;
                let report = simulated(seed * 100 + trial, rate.unwrap_or(1.0));
                let replies_per_s = if rate.is_none() { peak } else { report.replies_per_s };
                let is_good = rate.is_none() || measured(report, Vec::new()).keeps_up();
                let rate_per_s = rate.unwrap_or(peak);
                Ok::<_, ()>(RateTrial { rate_per_s, replies_per_s, latency_us: 0, is_good })
            })
            .expect("no trial fails");
            let found = best.map_or(0.0, |best| best.rate_per_s);
            assert!(found >= 0.8 * peak, "seed {seed}: {found} of {peak}: {trials:?}");
        }
    }

    #[test]
    fn a_rate_was_not_reached_when_fewer_requests_were_due() {
        let elapsed = Duration::from_secs(1);
        let report = |due_per_s, replies_per_s| LoadReport {
            elapsed,
            due_per_s,
            replies_per_s,
            ..LoadReport::default()
        };
        let agent = |due: f64, replies: f64| {
            let found = json!({ "due_per_second": due, "replies_per_second": replies });
            AgentResult { address: String::new(), found }
        };
        // At 100 a second, 82 were due.
        for (due, replies, keeps_up) in [
            (82.0, 82.0, true),
            (82.0, 60.0, false),
            (118.0, 118.0, true),
            (10_000.0, 9_450.0, true),
            (10_000.0, 9_000.0, false),
        ] {
            assert_eq!(measured(report(due, replies), Vec::new()).keeps_up(), keeps_up, "{replies} of {due}");
            let agents = vec![agent(due, replies), agent(due, replies)];
            assert_eq!(measured(report(1.0, 1.0), agents).keeps_up(), keeps_up, "{replies} of {due}, agents");
        }
        assert!(measured(report(0.0, 50.0), Vec::new()).keeps_up(), "nothing is due in a closed loop");
    }

    #[test]
    fn times_have_units() {
        assert_eq!(
            [0, 999, 1_000, 12_345, 2_500_000].map(time),
            ["0 us", "999 us", "1.00 ms", "12.35 ms", "2.50 s"]
        );
    }
}
