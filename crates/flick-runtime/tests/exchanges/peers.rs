//! Seeded peers of the small protocol: servers that answer as the key of the request says and, if they misbehave, break
//! every rule of it; clients that check each byte of each reply.

use std::cell::RefCell;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo, SimRng};

use super::tiny::Kind;

/// Bytes of a body, the same for the same key.
pub fn body(key: &str, len: usize) -> Vec<u8> {
    let mut rng = SimRng::new(flick_abi::hash::hash(key.as_bytes()));
    (0..len).map(|_| b'a' + (rng.next_u64() % 26) as u8).collect()
}

/// A message as it is written: its line, and its body in parts if it is cut up.
pub fn message(line: &str, body: &[u8], parts: Option<usize>) -> Vec<u8> {
    let Some(part) = parts else {
        return [format!("{line} len={}\n", body.len()).as_bytes(), body].concat();
    };
    let mut bytes = format!("{line} parts\n").into_bytes();
    for piece in body.chunks(part.max(1)) {
        bytes.extend(format!("{:x}\n", piece.len()).into_bytes());
        bytes.extend(piece);
    }
    bytes.extend(b"0\n");
    bytes
}

/// A message that was read.
#[derive(Clone, Debug, Default)]
pub struct DeliveredTo {
    /// The words of its line.
    pub words: Vec<String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl DeliveredTo {
    /// Takes a whole message off the front; `asked` is what a body of that length is. `ended`: nothing more comes.
    pub fn take(input: &mut Vec<u8>, ended: bool) -> Result<Option<DeliveredTo>, String> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut at = end + 1;
        let mut body = Vec::new();
        let len = words.iter().find_map(|word| word.strip_prefix("len=")?.parse::<usize>().ok());
        if let Some(len) = len {
            let Some(bytes) = input.get(at..at + len) else { return Ok(None) };
            body.extend(bytes);
            at += len;
        } else if words.iter().any(|word| word == "close") {
            if !ended {
                return Ok(None);
            }
            body.extend(&input[at..]);
            at = input.len();
        } else if words.iter().any(|word| word == "parts") {
            loop {
                let rest = &input[at..];
                let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
                let text = String::from_utf8_lossy(&rest[..end]).into_owned();
                let size =
                    usize::from_str_radix(&text, 16).map_err(|_| format!("a part of size {text:?}"))?;
                let Some(bytes) = rest.get(end + 1..end + 1 + size) else { return Ok(None) };
                body.extend(bytes);
                at += end + 1 + size;
                if size == 0 {
                    break;
                }
            }
        }
        input.drain(..at);
        Ok(Some(DeliveredTo { words, body }))
    }
}

/// Errors in the requests that reached the servers.
pub type Complaints = Rc<RefCell<Vec<String>>>;

/// One connection of a server.
pub struct Server {
    rng: SimRng,
    /// Number of requests, of 1000, that it treats badly.
    misbehaving_per_mille: u32,
    /// It misbehaves until then.
    calm_ns: u64,
    input: Vec<u8>,
    is_tunnel: bool,
    late: std::collections::VecDeque<Vec<u8>>,
    complaints: Complaints,
}

impl Server {
    /// A server that misbehaves until `calm_ns`.
    pub fn new(seed: u64, misbehaving_per_mille: u32, calm_ns: u64, complaints: &Complaints) -> Self {
        Self {
            rng: SimRng::new(seed),
            misbehaving_per_mille,
            calm_ns,
            input: Vec::new(),
            is_tunnel: false,
            late: Default::default(),
            complaints: Rc::clone(complaints),
        }
    }

    /// Returns the reply that `kind`, a hash of the request's key, selects, and whether the server closes after it.
    fn reply(key: &str, kind: u64) -> (Vec<u8>, bool) {
        let long = body(key, (kind as usize / 16) % 40_000);
        let short = body(key, (kind as usize / 16) % 200);
        match kind % 12 {
            0 => (message(&format!("ok {key}"), &long, None), false),
            1 => (message(&format!("ok {key}"), &long, Some(1 + kind as usize % 9_000)), false),
            2 => (message(&format!("ok {key}"), &short, Some(1 + kind as usize % 7)), false),
            3 => (message(&format!("ok {key} hop last"), &short, None), true),
            4 => ([format!("ok {key} close\n").as_bytes(), &long].concat(), true),
            5 => {
                let first = format!("wait {key} more\n").into_bytes();
                ([first, message(&format!("ok {key}"), &short, None)].concat(), false)
            }
            _ => (message(&format!("ok {key} hop"), &short, None), false),
        }
    }

    fn answer(&mut self, io: &mut PeerIo<'_>, is_delivered: &DeliveredTo) {
        let Some(key) = is_delivered.words.get(1) else { return };
        if is_delivered.words.iter().any(|word| word == "hop") {
            self.complaints.borrow_mut().push(format!("{key}: what is cut came through"));
        }
        if is_delivered.body != body(key, is_delivered.body.len()) {
            self.complaints.borrow_mut().push(format!("{key}: the body is another's"));
        }
        if is_delivered.words[0] == "up" {
            self.is_tunnel = true;
            io.write(format!("ok {key} tunnel\n").as_bytes());
            let rest = std::mem::take(&mut self.input);
            io.write(&rest);
            return;
        }
        let kind = flick_abi::hash::hash(key.as_bytes()) >> 7;
        let (bytes, closes) = Self::reply(key, kind);
        if io.now_ns() < self.calm_ns && self.rng.chance(self.misbehaving_per_mille) {
            match self.rng.between(0, 7) {
                0 => io.reset(),
                1 => io.close(),
                2 => {
                    io.write(&bytes[..bytes.len() / 2]);
                    io.close();
                }
                3 => {
                    io.write(&bytes[..bytes.len() - 1]);
                    io.reset();
                }
                4 => io.write(b"!\n"),
                // Bytes after a reply that look like a reply and come late cannot be distinguished from the next one.
                5 => io.write(&[&bytes[..], b"!more than that\n"].concat()),
                6 => {}
                _ => {
                    self.late.push_back(bytes);
                    io.timer(self.rng.between(1, 300) * 1_000_000, 0);
                }
            }
            return;
        }
        io.write(&bytes);
        if closes {
            io.close();
        }
    }
}

impl Actor for Server {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        if self.is_tunnel {
            io.write(data);
            return;
        }
        self.input.extend(data);
        loop {
            match DeliveredTo::take(&mut self.input, false) {
                Ok(Some(is_delivered)) => self.answer(io, &is_delivered),
                Ok(None) => return,
                Err(what) => {
                    self.complaints.borrow_mut().push(what);
                    return;
                }
            }
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        if let Some(bytes) = self.late.pop_front() {
            io.write(&bytes);
        }
    }
}

/// Result of a client's run.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Replies of servers.
    pub answered: u32,
    /// Replies of the platform in their place.
    pub failed: u32,
    /// Its connection has ended.
    pub closed: bool,
    /// The service ended its connection before all was answered.
    pub cut: bool,
    /// It has what it wanted, or as much of it as there will be.
    pub finished: bool,
    /// Error in the bytes that it received.
    pub wrong: Option<String>,
}

/// One client.
pub struct Client {
    /// Requests that it sends: key and bytes.
    requests: Vec<(String, Vec<u8>)>,
    sent: usize,
    is_delivered: usize,
    input: Vec<u8>,
    /// Sends everything at once.
    pipelines: bool,
    /// Disconnects after that many bytes.
    gives_up_after: usize,
    got: usize,
    /// Bytes that it sends through its tunnel, and the number of them that have come back.
    raw: Option<(Vec<u8>, usize)>,
    is_tunnel: bool,
    /// The last reply said that it ends with the connection.
    is_last: bool,
    /// Whether the service passes on raw bytes and so cuts no `hop`.
    is_raw: bool,
    verdict: Rc<RefCell<Verdict>>,
}

impl Client {
    /// A client with that many requests; `habits`: it may disconnect.
    pub fn new(
        rng: &mut SimRng,
        name: u64,
        requests: u64,
        (kind, habits): (Kind, bool),
        verdict: Rc<RefCell<Verdict>>,
    ) -> Self {
        // What is only passed on is neither cut nor answered on the way.
        let hop = if kind == Kind::Raw { "" } else { " hop" };
        let mut all = Vec::new();
        let mut raw = None;
        for at in 0..requests {
            let key = format!("c{name}n{at}x{}", rng.between(0, 7));
            let len = if rng.chance(200) { rng.between(0, 60_000) } else { rng.between(0, 300) } as usize;
            let content = body(&key, len);
            let (long, short) = (rng.between(1, 5_000) as usize, rng.between(1, 5) as usize);
            match rng.between(0, 7) {
                0 => all.push((key.clone(), message(&format!("put {key}{hop}"), &content, None))),
                1 => all.push((key.clone(), message(&format!("put {key}"), &content, Some(long)))),
                2 => {
                    let content = &content[..len.min(40)];
                    all.push((key.clone(), message(&format!("put {key}"), content, Some(short))));
                }
                3 if kind == Kind::Exclusive => {
                    all.push(("local".to_owned(), format!("get local{at}\n").into_bytes()));
                }
                _ => all.push((key.clone(), format!("get {key} retry\n").into_bytes())),
            }
        }
        if kind != Kind::Private && rng.chance(300) {
            let key = format!("c{name}t0");
            all.push((key.clone(), format!("up {key}{hop}\n").into_bytes()));
            raw = Some((body(&key, rng.between(1, 100_000) as usize), 0));
        }
        let gives_up_after =
            if habits && rng.chance(300) { rng.between(1, 50_000) as usize } else { usize::MAX };
        Self {
            requests: all,
            sent: 0,
            is_delivered: 0,
            input: Vec::new(),
            pipelines: rng.chance(500),
            gives_up_after,
            got: 0,
            raw,
            is_tunnel: false,
            is_last: false,
            is_raw: kind == Kind::Raw,
            verdict,
        }
    }

    fn send(&mut self, io: &mut PeerIo<'_>) {
        while self.sent < self.requests.len() && (self.pipelines || self.sent == self.is_delivered) {
            io.write(&self.requests[self.sent].1);
            self.sent += 1;
        }
    }

    fn hear(&mut self, io: &mut PeerIo<'_>, ended: bool) -> Result<(), String> {
        while self.is_delivered < self.requests.len() {
            let Some(is_delivered) = DeliveredTo::take(&mut self.input, ended)? else { return Ok(()) };
            let key = &self.requests[self.is_delivered].0;
            match is_delivered.words[0].as_str() {
                "wait" if is_delivered.words[1] == *key => continue,
                "fail" => self.verdict.borrow_mut().failed += 1,
                "ok" => {
                    let named = is_delivered.words.iter().any(|word| word == key) || key == "local";
                    let content =
                        if key == "local" { b"local".to_vec() } else { body(key, is_delivered.body.len()) };
                    let is_cut = self.is_raw || is_delivered.words.iter().all(|word| word != "hop");
                    if !is_cut || !named || is_delivered.body != content {
                        return Err(format!(
                            "{key} was answered {:?} and {} bytes",
                            is_delivered.words,
                            is_delivered.body.len()
                        ));
                    }
                    self.verdict.borrow_mut().answered += 1;
                }
                _ => return Err(format!("{key} was answered {:?}", is_delivered.words)),
            }
            self.is_delivered += 1;
            self.is_last = is_delivered.words.iter().any(|word| word == "close");
            if is_delivered.words.iter().any(|word| word == "tunnel")
                && let Some((raw, _)) = &self.raw
            {
                io.write(raw);
                io.shutdown_write();
                self.is_tunnel = true;
                return Ok(());
            }
            self.send(io);
        }
        Ok(())
    }

    fn through_tunnel(&mut self) -> Result<(), String> {
        if let Some((raw, back)) = self.raw.as_mut().filter(|_| self.is_tunnel) {
            let input = std::mem::take(&mut self.input);
            if raw.get(*back..*back + input.len()) != Some(&input[..]) {
                return Err(format!("{} other bytes came through the tunnel", input.len()));
            }
            *back += input.len();
        }
        Ok(())
    }

    fn look(&mut self, io: &mut PeerIo<'_>, ended: bool) {
        let seen = self.hear(io, ended).and_then(|()| self.through_tunnel());
        let through = self.raw.as_ref().is_none_or(|(raw, back)| *back == raw.len() || !self.is_tunnel);
        let mut verdict = self.verdict.borrow_mut();
        if let Err(what) = seen {
            verdict.wrong = Some(what);
        }
        let done = self.is_delivered == self.requests.len();
        if done && through && !verdict.finished {
            verdict.finished = true;
            drop(verdict);
            if !self.is_tunnel {
                io.close();
            }
        }
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.send(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        self.got += data.len();
        if self.got > self.gives_up_after {
            io.reset();
            self.verdict.borrow_mut().closed = true;
            return;
        }
        self.look(io, false);
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.look(io, true);
        let mut verdict = self.verdict.borrow_mut();
        verdict.closed = true;
        verdict.cut |= !verdict.finished && !self.is_last;
        drop(verdict);
        io.close();
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        let mut verdict = self.verdict.borrow_mut();
        verdict.closed = true;
        verdict.cut |= !verdict.finished;
    }
}
