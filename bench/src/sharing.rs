//! Figure 7 of the paper: 200 tasks share one worker, half of them with items of 1 KiB and half with items of 16 KiB,
//! under each of the three policies.
//!
//! Promises: every task has the same number of items; the worker is stopped until the kernel has accepted all
//! it can from every client, so that all begin at once; each reply must be the sum of its item's bytes.
//! Not here: tasks without connections. The clock of a task ends when its client has read its last reply.
//! Source: FLICK §6.4.

mod plot;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, kill_process};

use crate::cli::{CoreArgs, FlickArgs, SharingArgs};
use crate::machine::Machine;
use crate::page;
use crate::process::{Server, free_addr, workspace};
use crate::stats::Spread;

/// Bytes of an item, its header of [`HEADER_BYTES`] included.
const LIGHT_BYTES: usize = 1024;
const HEAVY_BYTES: usize = 16 * 1024;
const HEADER_BYTES: usize = 8;
/// Bytes that a client offers its socket at once.
const OFFER_BYTES: usize = 128 * 1024;
/// A task without a reply for this time will never have one.
const QUIET: Duration = Duration::from_secs(20);

/// File, heading and items of each task.
const SHAPES: [(&str, &str, usize); 2] = [
    ("sharing", "All items are there: four of each task, as much as is received at once", 4),
    ("sharing-streams", "Items keep coming: a hundred of each task", 100),
];

/// Items of each task in the pass that is not measured.
const WARM_ITEMS: usize = 4;

/// The scheduling policies.
const POLICIES: [&str; 3] = ["cooperative", "run-to-completion", "round-robin"];

/// One task: a client, its unsent bytes and the replies that it waits for.
struct Task {
    stream: TcpStream,
    is_light: bool,
    item_bytes: usize,
    /// Copies of its item.
    offer: Vec<u8>,
    unsent_bytes: usize,
    /// Position in `offer` of the next byte.
    at: usize,
    reply: [u8; HEADER_BYTES],
    input: Vec<u8>,
    missing_replies: usize,
    done: Option<Duration>,
}

impl Task {
    fn new(addr: SocketAddr, is_light: bool, item_bytes: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        let data: Vec<u8> = (0..item_bytes - HEADER_BYTES).map(|index| (index * 7 + 3) as u8).collect();
        let sum: u32 = data.iter().map(|byte| 4 * u32::from(*byte)).sum();
        let header = |magic: u8, size: usize, sum: u32| {
            let (size, sum) = ((size as u16).to_be_bytes(), sum.to_be_bytes());
            [magic, 0, size[0], size[1], sum[0], sum[1], sum[2], sum[3]]
        };
        let item = [&header(0x80, data.len(), 0)[..], &data].concat();
        Ok(Self {
            stream,
            is_light,
            item_bytes,
            unsent_bytes: 0,
            at: 0,
            offer: item.repeat((OFFER_BYTES / item_bytes).max(1)),
            reply: header(0x81, 0, sum),
            input: Vec::new(),
            missing_replies: 0,
            done: None,
        })
    }

    /// Sends one item and waits for its reply: the connection is accepted then.
    fn greet(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.offer[..self.item_bytes])?;
        let mut reply = [0; HEADER_BYTES];
        self.stream.read_exact(&mut reply)?;
        if reply != self.reply {
            return Err(io::Error::other(format!("{reply:?} instead of {:?}", self.reply)));
        }
        self.stream.set_nonblocking(true)
    }

    fn begin(&mut self, items: usize) {
        (self.unsent_bytes, self.missing_replies, self.done) = (items * self.item_bytes, items, None);
    }

    /// Writes as much as the socket takes.
    fn write_some(&mut self) -> io::Result<()> {
        while self.unsent_bytes > 0 {
            let part = &self.offer[self.at..];
            match self.stream.write(&part[..part.len().min(self.unsent_bytes)]) {
                Ok(count) => {
                    self.unsent_bytes -= count;
                    self.at = (self.at + count) % self.offer.len();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads all that has arrived; returns whether there was any.
    fn read_some(&mut self, begun: Instant) -> io::Result<bool> {
        let (mut buffer, mut moved) = ([0; 4096], false);
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::other("the service has closed a connection")),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            moved = true;
        }
        let whole = self.input.len() / HEADER_BYTES;
        for reply in self.input.drain(..whole * HEADER_BYTES).as_slice().chunks(HEADER_BYTES) {
            if reply != self.reply || self.missing_replies == 0 {
                return Err(io::Error::other(format!("{reply:?} instead of {:?}", self.reply)));
            }
            self.missing_replies -= 1;
        }
        if self.missing_replies == 0 {
            self.done.get_or_insert_with(|| begun.elapsed());
        }
        Ok(moved)
    }
}

/// Completion times of the tasks of one round and processor time of the service, in seconds.
struct Round {
    light_last_s: f64,
    light_mean_s: f64,
    heavy_last_s: f64,
    heavy_mean_s: f64,
    total_s: f64,
    /// Processor time of the service.
    cpu_s: f64,
}

/// Runs all policies and writes the page and the pictures.
pub(crate) fn run(args: &SharingArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let machine = Machine::describe(&args.run.flick.path());
    let mut page = format!(
        "# Sharing a worker: Figure 7 of the paper\n\n{} clients of one worker, half with items of 1 KiB and half with items of 16 KiB, \
         as many of them each; the service adds up the bytes of an item and answers with the sum. Medians of {} rounds, extremes \
         in brackets; see METHOD.md.\n\n- Linux {}, {} cores\n",
        args.tasks, args.run.rounds, machine.kernel, machine.cores,
    );
    for (name, what, items) in SHAPES {
        let rows = shape(args, items)?;
        let table = table(&rows);
        println!("{what}\n\n{table}");
        let _ = writeln!(page, "\n## {what}\n\n![When tasks are done]({name}.svg)\n\n{table}");
        if let Some(results) = &args.run.results {
            std::fs::create_dir_all(results)?;
            let bars: Vec<plot::Bars<'_>> =
                rows.iter().map(|(policy, rounds)| bars(policy, rounds)).collect();
            std::fs::write(results.join(format!("{name}.svg")), plot::svg(&bars))?;
        }
    }
    if let Some(results) = &args.run.results {
        page.push_str(include_str!("sharing/notes.md"));
        page::write(results, "sharing.md", &page)?;
    }
    Ok(())
}

fn bars<'a>(policy: &'a str, rounds: &[Round]) -> plot::Bars<'a> {
    plot::Bars {
        name: policy,
        light_s: median(rounds, |round| round.light_last_s),
        light_mean_s: median(rounds, |round| round.light_mean_s),
        heavy_s: median(rounds, |round| round.heavy_last_s),
        heavy_mean_s: median(rounds, |round| round.heavy_mean_s),
    }
}

/// All rounds of all policies, which alternate.
fn shape(args: &SharingArgs, items: usize) -> io::Result<Vec<(&'static str, Vec<Round>)>> {
    let wanted = |policy: &&str| args.only.as_ref().is_none_or(|only| policy.contains(only.as_str()));
    let mut rows: Vec<(&'static str, Vec<Round>)> =
        POLICIES.into_iter().filter(wanted).map(|policy| (policy, Vec::new())).collect();
    for number in 1..=args.run.rounds.max(1) {
        for (policy, rounds) in &mut rows {
            let shape = Shape { tasks: args.tasks, items, bytes: [LIGHT_BYTES, HEAVY_BYTES] };
            let round = round(&args.run.flick, &args.run.cores, policy, &shape)
                .map_err(|error| io::Error::other(format!("{policy}, round {number}: {error}")))?;
            eprintln!(
                "round {number} {policy:<18} light {:.3} s (mean {:.3}), heavy {:.3} s (mean {:.3}), {:.3} s of a core",
                round.light_last_s, round.light_mean_s, round.heavy_last_s, round.heavy_mean_s, round.cpu_s
            );
            rounds.push(round);
        }
    }
    Ok(rows)
}

fn median(rounds: &[Round], read: impl Fn(&Round) -> f64) -> f64 {
    Spread::of(rounds.iter().map(read)).median
}

/// Tasks, and items of each, to measure a switch with.
const SWITCH_TASKS: usize = 200;
const SWITCH_ITEMS: usize = 1_000;

/// Nanoseconds of one more quantum of a task: with items without data, one quantum for each against one for all.
pub(crate) fn switch_ns(flick: &FlickArgs, cores: &CoreArgs) -> io::Result<f64> {
    let cpu_s = |policy| {
        let shape = Shape { tasks: SWITCH_TASKS, items: SWITCH_ITEMS, bytes: [HEADER_BYTES; 2] };
        round(flick, cores, policy, &shape).map(|round| round.cpu_s)
    };
    let (quanta, runs) = (cpu_s("round-robin")?, cpu_s("run-to-completion")?);
    Ok((quanta - runs) * 1e9 / (SWITCH_TASKS * SWITCH_ITEMS) as f64)
}

/// Number of tasks, items per task, and bytes per item of a light and of a heavy task.
struct Shape {
    tasks: usize,
    items: usize,
    bytes: [usize; 2],
}

fn round(flick: &FlickArgs, cores: &CoreArgs, policy: &str, shape: &Shape) -> io::Result<Round> {
    let addr = free_addr()?;
    let mut command = flick.run(&workspace().join("bench/scenarios/sharing/adding.flick"));
    command.arg("--listen").arg(format!("client={addr}")).args(["--task-scheduling", policy]);
    let server = Server::start(command, cores.server_core, cores.load_core, addr)?;
    let mut tasks = (0..shape.tasks)
        .map(|number| Task::new(addr, number % 2 == 0, shape.bytes[number % 2]))
        .collect::<io::Result<Vec<_>>>()?;
    tasks.iter_mut().try_for_each(Task::greet)?;
    // Once unmeasured: the service touches its memory for the first time.
    play(&server, &mut tasks, shape.items.min(WARM_ITEMS))?;
    let cpu_s = play(&server, &mut tasks, shape.items)?;
    let done = |light: bool| {
        let all = tasks.iter().filter(move |task| task.is_light == light);
        all.filter_map(|task| task.done).map(|done| done.as_secs_f64())
    };
    let mean = |light| done(light).sum::<f64>() / done(light).count().max(1) as f64;
    let last = |light| done(light).fold(0.0, f64::max);
    Ok(Round {
        light_last_s: last(true),
        light_mean_s: mean(true),
        heavy_last_s: last(false),
        heavy_mean_s: mean(false),
        total_s: last(true).max(last(false)),
        cpu_s,
    })
}

/// Sends all tasks' items while the worker is stopped, resumes it, and waits until every task is done.
/// Returns the processor time of the service.
fn play(server: &Server, tasks: &mut [Task], items: usize) -> io::Result<f64> {
    let pid = server.pid();
    kill_process(pid, Signal::STOP)?;
    let before = server.cpu_time_of_threads()?;
    for task in &mut *tasks {
        task.begin(items);
        task.write_some()?;
    }
    let begun = Instant::now();
    kill_process(pid, Signal::CONT)?;
    drive(tasks, begun)?;
    Ok(server.cpu_time_of_threads()?.saturating_sub(before).as_secs_f64())
}

/// Writes and reads until every task is done.
fn drive(tasks: &mut [Task], begun: Instant) -> io::Result<()> {
    let mut moved_at = Instant::now();
    while tasks.iter().any(|task| task.done.is_none()) {
        let open: Vec<usize> = (0..tasks.len()).filter(|index| tasks[*index].done.is_none()).collect();
        let mut watched: Vec<PollFd<'_>> = open
            .iter()
            .map(|index| {
                let wants = if tasks[*index].unsent_bytes > 0 { PollFlags::OUT } else { PollFlags::empty() };
                PollFd::new(&tasks[*index].stream, wants | PollFlags::IN)
            })
            .collect();
        let timeout = Duration::from_millis(100).try_into().map_err(io::Error::other)?;
        poll(&mut watched, Some(&timeout))?;
        let ready: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        for (index, flags) in open.into_iter().zip(ready) {
            if flags.contains(PollFlags::OUT) {
                tasks[index].write_some()?;
            }
            if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                && tasks[index].read_some(begun)?
            {
                moved_at = Instant::now();
            }
        }
        if moved_at.elapsed() > QUIET {
            return Err(io::Error::other("no task has a reply any more"));
        }
    }
    Ok(())
}

fn table(rows: &[(&str, Vec<Round>)]) -> String {
    let mut text = String::from(
        "| policy | last light task, s | light, mean | heavy, mean | all tasks, s | light of all | all, against run to completion | core, s |\n|---|---|--:|--:|---|--:|--:|--:|\n",
    );
    let completion = rows.iter().find(|(policy, _)| *policy == "run-to-completion").map(|(_, rounds)| rounds);
    for (policy, rounds) in rows {
        let light = Spread::of(rounds.iter().map(|round| round.light_last_s));
        let total = Spread::of(rounds.iter().map(|round| round.total_s));
        // Round by round, so that what the machine does meanwhile is on both sides.
        let ratio = completion.map_or(String::new(), |base| {
            let pairs = rounds.iter().zip(base).map(|(round, base)| round.total_s / base.total_s);
            format!("{:.3}", Spread::of(pairs).median)
        });
        let share = median(rounds, |round| round.light_last_s / round.total_s);
        let _ = writeln!(
            text,
            "| {policy} | {:.3} ({:.3}–{:.3}) | {:.3} | {:.3} | {:.3} ({:.3}–{:.3}) | {share:.2} | {ratio} | {:.3} |",
            light.median,
            light.min,
            light.max,
            median(rounds, |round| round.light_mean_s),
            median(rounds, |round| round.heavy_mean_s),
            total.median,
            total.min,
            total.max,
            median(rounds, |round| round.cpu_s),
        );
    }
    text
}
