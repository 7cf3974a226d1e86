//! The Hadoop aggregator of Listing 3, with one and two workers, beside a merge written by hand for this one job.
//!
//! Promises: every side gets the same streams and must give the same result, which is checked; processor time is that
//! of the side's own process, from its start to the end of the result.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::{HadoopArgs, HadoopMergeArgs};
use crate::process::{cpu_time_of, free_addr};
use crate::stats::Spread;

/// Bytes read and written at once by the merge written by hand.
const HAND_BYTES: usize = 64 * 1024;

/// The figures of one round.
struct Round {
    wall: Duration,
    cpu: Duration,
}

/// Runs all sides and prints what was found.
pub(crate) fn run(args: &HadoopArgs) -> io::Result<()> {
    let streams: Vec<Vec<u8>> = (0..args.streams).map(|number| stream(args, number)).collect();
    let bytes: usize = streams.iter().map(Vec::len).sum();
    let records = args.records * args.streams as u64;
    println!(
        "{} streams of {} pairs each, words of {} bytes out of {}: {records} pairs, {:.1} MB; {} rounds",
        args.streams,
        args.records,
        args.word_bytes,
        args.words,
        bytes as f64 / 1e6,
        args.rounds
    );
    println!("\n| side | Gb/s | Gb/s of a core's time | ns of a core for each pair |\n|---|---|---|---|");
    let mut expected = None;
    for side in ["by hand", "flick, 1 worker", "flick, 2 workers"] {
        let mut rounds = Vec::new();
        for _ in 0..args.rounds {
            let (round, result) = round(args, side, &streams)?;
            let known = expected.get_or_insert_with(|| result.clone());
            if *known != result {
                return Err(io::Error::other(format!("{side}: another result than the first side's")));
            }
            rounds.push(round);
        }
        let gbit = bytes as f64 * 8.0 / 1e9;
        let rate = Spread::of(rounds.iter().map(|round| gbit / round.wall.as_secs_f64()));
        let of_core = Spread::of(rounds.iter().map(|round| gbit / round.cpu.as_secs_f64()));
        let each = Spread::of(rounds.iter().map(|round| round.cpu.as_nanos() as f64 / records as f64));
        let cell = |spread: Spread| format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max);
        println!("| {side} | {} | {} | {} |", cell(rate), cell(of_core), cell(each));
    }
    Ok(())
}

/// A sorted stream: words drawn from a vocabulary that all streams share, each with the value 1.
fn stream(args: &HadoopArgs, number: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % args.words
    };
    let mut drawn: Vec<u64> = (0..args.records).map(|_| draw()).collect();
    drawn.sort_unstable();
    let width = args.word_bytes;
    drawn
        .iter()
        .flat_map(|word| [&[width as u8, 1], format!("{word:0width$}").as_bytes(), b"1"].concat())
        .collect()
}

/// A running side; killed and reaped when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the child has ended by itself, and then it only has to be reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn round(args: &HadoopArgs, side: &str, streams: &[Vec<u8>]) -> io::Result<(Round, Vec<u8>)> {
    let reducer = TcpListener::bind(("127.0.0.1", 0))?;
    let (at, to) = (free_addr()?, reducer.local_addr()?);
    let mut running =
        Running(command(args, side, at, to)?.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?);
    let log = running.0.stderr.take().ok_or_else(|| io::Error::other("no log"))?;
    let mut lines = BufReader::new(log).lines();
    let listening = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening")));
    listening.ok_or_else(|| io::Error::other(format!("{side} does not listen")))??;
    let pid = running.0.id();
    let (begun, cpu_before) = (Instant::now(), cpu_time_of(pid)?);
    let result = thread::scope(|scope| {
        for stream in streams {
            scope.spawn(move || {
                let mut conn = TcpStream::connect(at)?;
                conn.write_all(stream)?;
                conn.shutdown(Shutdown::Write)?;
                conn.read(&mut [0]).map(|_| ())
            });
        }
        let (mut conn, _) = reducer.accept()?;
        let mut result = Vec::new();
        conn.read_to_end(&mut result)?;
        io::Result::Ok(result)
    })?;
    let (wall, cpu) = (begun.elapsed(), cpu_time_of(pid)?.saturating_sub(cpu_before));
    Ok((Round { wall, cpu }, result))
}

fn command(args: &HadoopArgs, side: &str, at: SocketAddr, to: SocketAddr) -> io::Result<Command> {
    if side == "by hand" {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["hadoop-merge", &at.to_string(), &to.to_string(), &args.streams.to_string()]);
        return Ok(command);
    }
    let workers = if side.contains('1') { "1" } else { "2" };
    let mut command = Command::new(args.flick.as_deref().unwrap_or("target/release/flick".as_ref()));
    command.args(["run", "examples/hadoop_wordcount/hadoop_wordcount.flick", "--workers", workers]);
    command.args([
        "--listen",
        &format!("mappers={at}x{}", args.streams),
        "--connect",
        &format!("reducer={to}"),
    ]);
    Ok(command)
}

/// One stream of the merge written by hand, cut into pairs of at most 127 bytes a part.
struct Source {
    conn: TcpStream,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Source {
    /// The front pair, read if need be: its whole length and that of its key. `None` at the end.
    fn front(&mut self) -> io::Result<Option<(usize, usize)>> {
        loop {
            if let [key, value, ..] = self.bytes[self.start..self.end] {
                let total = 2 + usize::from(key) + usize::from(value);
                if self.end - self.start >= total {
                    return Ok(Some((total, usize::from(key))));
                }
            }
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let read = self.conn.read(&mut self.bytes[self.end..])?;
            if read == 0 {
                return Ok(None);
            }
            self.end += read;
        }
    }

    fn key(&self, key_len: usize) -> &[u8] {
        &self.bytes[self.start + 2..self.start + 2 + key_len]
    }
}

/// The rival: one thread, blocking reads, the smallest of all fronts by comparison, numbers added as numbers.
pub(crate) fn merge(args: &HadoopMergeArgs) -> io::Result<()> {
    let listener = TcpListener::bind(args.listen)?;
    eprintln!("listening");
    let mut sources = Vec::new();
    for _ in 0..args.streams {
        let (conn, _) = listener.accept()?;
        sources.push(Source { conn, bytes: vec![0; HAND_BYTES], start: 0, end: 0 });
    }
    let mut out = io::BufWriter::with_capacity(HAND_BYTES, TcpStream::connect(args.reducer)?);
    let mut fronts = sources.iter_mut().map(Source::front).collect::<io::Result<Vec<_>>>()?;
    let mut key = Vec::new();
    loop {
        let mut least: Option<&[u8]> = None;
        for (source, front) in sources.iter().zip(&fronts) {
            let Some((_, key_len)) = front else { continue };
            let own = source.key(*key_len);
            if least.is_none_or(|least| own < least) {
                least = Some(own);
            }
        }
        let Some(least) = least else { break };
        key.clear();
        key.extend_from_slice(least);
        let mut sum = 0i64;
        for (source, front) in sources.iter_mut().zip(&mut fronts) {
            while let Some((total, key_len)) = *front {
                if source.key(key_len) != key {
                    break;
                }
                let value = &source.bytes[source.start + 2 + key_len..source.start + total];
                sum += std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
                source.start += total;
                *front = source.front()?;
            }
        }
        let value = sum.to_string();
        out.write_all(&[key.len() as u8, value.len() as u8])?;
        out.write_all(&key)?;
        out.write_all(value.as_bytes())?;
    }
    out.flush()
}
