//! Agents of `flick load`: processes, on other cores or hosts, that put load on a server for a master, which measures.
//! Promises: an agent runs one load at a time, within the limits of `flick load`; it stops when its master is gone; all
//! agents begin together.
//! Refuses: authentication. Every process that can connect to an agent can make it load any server.
//!
//! Master and agent exchange lines of JSON: the master sends its arguments; the agent answers `"ready"`, or why not;
//! the master sends `"go"`; the agent sends its results. Another line of the master ends the load.
//! Source: the agents of mutilate.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::{Args, Parser};
use serde_json::{Value, json};

use super::report::AgentResult;
use super::{DRAIN, LOOK_EVERY, LoadOptions, drive, raise_file_limit};
use crate::failure::{Failure, Outcome, start_help};

/// Agents of one master.
pub const AGENTS_MAX: usize = 64;
/// Longest line that either side accepts.
const LINE_BYTES_MAX: u64 = 256 << 10;
/// Longest time to connect to an agent, and that a line may take when it is due.
const LINE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Options of the master that an agent does not get as they are.
const OF_THE_MASTER: [&str; 5] = ["--agents", "--measure-rate", "--rate", "--search", "--seed"];
/// Option that has no meaning in a closed loop, such as the first load of a search.
const OF_THE_OPEN_LOOP: &str = "--gaps";

/// Waits for loads.
#[derive(Debug, Args)]
pub struct Agent {
    /// Address to listen on, as IP:PORT; every process that reaches it can make this one load any server
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: SocketAddr,
}

/// Parses an address to listen on. Errors: how one is written.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| format!("`{text}` is not an address; write an IP address and a port: `127.0.0.1:7000`");
    text.parse().map_err(wrong)
}

/// The arguments that a master sends.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Order {
    #[command(flatten)]
    options: LoadOptions,
}

impl Agent {
    /// Serves masters one after the other, until a signal ends the process.
    pub fn run(self) -> Outcome {
        let failed = |error: io::Error| {
            let help = start_help(&error);
            Failure::failed(format!("cannot listen on {}: {error}{help}", self.listen))
        };
        let listener = TcpListener::bind(self.listen).map_err(failed)?;
        crate::console::sayln!("agent at {}", listener.local_addr().map_err(failed)?);
        loop {
            let (stream, master) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    anstream::eprintln!("cannot accept a master: {error}");
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
            };
            if let Err(error) = serve(stream) {
                anstream::eprintln!("the load of {master} has ended early: {error}");
            }
        }
    }
}

/// Runs the load of one master.
fn serve(stream: TcpStream) -> io::Result<()> {
    let mut conn = AgentConn::new(stream)?;
    let arguments = conn.read(LINE_WAIT_MAX)?;
    let order = match order(&arguments) {
        Ok(order) => order,
        Err(failure) => {
            let why = failure.text();
            conn.write(&json!({ "failed": why }))?;
            return Err(io::Error::other(why));
        }
    };
    let (url, config) = order;
    conn.write(&json!("ready"))?;
    if conn.read(LINE_WAIT_MAX)? != json!("go") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    raise_file_limit(config.connections);
    let measured = drive(&url, config, || conn.must_stop(), false)
        .map_err(|failure| io::Error::other(failure.text()))?;
    conn.write(&measured.json())
}

/// Reads the arguments of a load, and checks them and its server.
fn order(arguments: &Value) -> Result<(String, flick_load::load::LoadConfig), Failure> {
    let wrong = || Failure::failed("the arguments are not an array of strings");
    let texts: Option<Vec<&str>> =
        arguments.as_array().ok_or_else(wrong)?.iter().map(Value::as_str).collect();
    let arguments = std::iter::once("flick load").chain(texts.ok_or_else(wrong)?);
    let order = Order::try_parse_from(arguments).map_err(|error| Failure::failed(error.to_string()))?;
    Ok((order.options.url(), order.options.config()?))
}

/// One connection between a master and an agent.
pub struct AgentConn {
    address: String,
    reader: BufReader<TcpStream>,
    /// Whether the other side has ended the load.
    is_stopped: bool,
}

impl AgentConn {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LINE_WAIT_MAX))?;
        let address = stream.peer_addr()?.to_string();
        Ok(Self { address, reader: BufReader::new(stream), is_stopped: false })
    }

    fn write(&mut self, value: &Value) -> io::Result<()> {
        self.reader.get_mut().write_all(format!("{value}\n").as_bytes())
    }

    fn read(&mut self, wait: Duration) -> io::Result<Value> {
        self.reader.get_mut().set_read_timeout(Some(wait))?;
        let mut line = String::new();
        (&mut self.reader).take(LINE_BYTES_MAX).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&line).map_err(io::Error::other)
    }

    /// Waits a moment; returns whether the other side has sent something, or is gone, once.
    fn must_stop(&mut self) -> bool {
        if self.is_stopped {
            std::thread::sleep(LOOK_EVERY);
            return false;
        }
        let has_line = !self.reader.buffer().is_empty();
        let stream = self.reader.get_mut();
        let peeked = stream.set_read_timeout(Some(LOOK_EVERY)).and_then(|()| stream.peek(&mut [0]));
        let is_quiet = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            )
        };
        self.is_stopped = has_line || !peeked.as_ref().is_err_and(is_quiet);
        self.is_stopped
    }
}

/// Distance between the seeds of two agents: those of masters that are numbered one after the other stay different.
const SEED_STRIDE: u64 = 1 << 40;

/// Connects to all agents, passes the arguments of this process on, and makes all of them begin. Each has a seed of its
/// own, which follows from that of this process.
///
/// Errors: an agent cannot be reached, or refuses the load.
pub fn begin(
    agents: &[String],
    rate_per_s: Option<f64>,
    own_rate: f64,
    seed: u64,
) -> Result<(Vec<AgentConn>, Duration), Failure> {
    let all: Vec<String> = std::env::args().skip_while(|argument| argument != "load").skip(1).collect();
    let mut begun = Vec::with_capacity(agents.len());
    for (at, agent) in agents.iter().enumerate() {
        let failed = |error: io::Error| Failure::failed(format!("agent {agent}: {error}"));
        let share = rate_per_s.map(|rate| (rate - own_rate) / agents.len() as f64);
        let arguments = of_an_agent(&all, share, seed_of_agent(seed, at));
        let mut conn = connect(agent).and_then(AgentConn::new).map_err(failed)?;
        conn.write(&json!(arguments)).map_err(failed)?;
        let answer = conn.read(LINE_WAIT_MAX).map_err(failed)?;
        if answer != json!("ready") {
            let why = answer["failed"].as_str().unwrap_or("it does not answer as an agent");
            return Err(Failure::failed(format!("agent {agent}: {why}")));
        }
        begun.push(conn);
    }
    for conn in &mut begun {
        let written = conn.write(&json!("go"));
        written.map_err(|error| Failure::failed(format!("agent {}: {error}", conn.address)))?;
    }
    Ok((begun, DRAIN + LINE_WAIT_MAX))
}

/// Reads the results of all agents; `is_stopped`: they are to end early.
///
/// Errors: an agent sends none.
pub fn results(
    (begun, wait): (Vec<AgentConn>, Duration),
    is_stopped: bool,
) -> Result<Vec<AgentResult>, Failure> {
    let read = |mut conn: AgentConn| {
        if is_stopped {
            // A line of any kind ends the load of an agent; one that is gone is found when it is read from.
            let _ = conn.write(&json!("stop"));
        }
        let address = conn.address.clone();
        match conn.read(wait) {
            Ok(found) => Ok(AgentResult { address, found }),
            Err(error) => Err(Failure::failed(format!("agent {address} sends no results: {error}"))),
        }
    };
    begun.into_iter().map(read).collect()
}

fn connect(agent: &str) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::NotFound.into();
    for address in agent.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LINE_WAIT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Returns the seed of an agent, which follows from that of the master and differs from it.
fn seed_of_agent(seed: u64, at: usize) -> u64 {
    seed.wrapping_add((at as u64 + 1) * SEED_STRIDE)
}

/// Returns the arguments without the options of the master, and in a closed loop without the gaps; with the seed of the
/// agent, and its share of the rate in an open loop.
fn of_an_agent(all: &[String], rate_per_s: Option<f64>, seed: u64) -> Vec<String> {
    let is_dropped =
        |name: &str| OF_THE_MASTER.contains(&name) || (name == OF_THE_OPEN_LOOP && rate_per_s.is_none());
    let mut kept = Vec::with_capacity(all.len());
    let mut arguments = all.iter();
    while let Some(argument) = arguments.next() {
        match argument.split_once('=') {
            Some((name, _)) if is_dropped(name) => {}
            None if is_dropped(argument) => {
                arguments.next();
            }
            _ => kept.push(argument.clone()),
        }
    }
    kept.push(format!("--seed={seed}"));
    kept.extend(rate_per_s.map(|rate| format!("--rate={}", rate.max(1.0))));
    kept
}

#[cfg(test)]
mod tests {
    use super::{of_an_agent, seed_of_agent};

    #[test]
    fn an_agent_gets_the_options_of_its_load() {
        let all = [
            "redis://a",
            "--agents",
            "b:1,c:1",
            "--rate=5k",
            "--gaps",
            "etc",
            "--search",
            "p99:1ms",
            "--json",
        ];
        let all = all.map(str::to_owned);
        let open = of_an_agent(&all, Some(500.0), 7);
        assert_eq!(open, ["redis://a", "--gaps", "etc", "--json", "--seed=7", "--rate=500"]);
        assert_eq!(of_an_agent(&all, None, 7), ["redis://a", "--json", "--seed=7"]);
    }

    #[test]
    fn agents_ignored_the_seed() {
        let all = ["redis://a", "--seed", "5"].map(str::to_owned);
        let seeds = [(5, 0), (5, 1), (6, 0), (6, 1)].map(|(seed, at)| seed_of_agent(seed, at));
        for (at, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..at].contains(seed), "{seeds:?}");
            assert_eq!(of_an_agent(&all, None, *seed), ["redis://a".to_owned(), format!("--seed={seed}")]);
        }
        // The largest seed is one, too.
        assert_ne!(seed_of_agent(u64::MAX, 0), seed_of_agent(u64::MAX, 1));
    }
}
