//! A client of any protocol that pipelines its requests and checks every reply: in order, its own, no more than it asked.
//! Promises: whatever it is told too much or wrongly is found out, unless a server has lied before (`Common::has_lied`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo};

use super::{Common, Cut, Judged, Owed, Protocol, Request, shown};
use crate::service::client::{Habit, PAUSES_MAX, STAYS_NS, Verdict};

pub(super) struct Client {
    protocol: Rc<dyn Protocol>,
    common: Common,
    unsent: VecDeque<u8>,
    waiting: VecDeque<Request>,
    input: Vec<u8>,
    habit: Habit,
    verdict: Rc<RefCell<Verdict>>,
    unpaused_bytes: usize,
    pauses_left: u32,
    /// It has sent what is no request, and may be told so.
    is_malformed: bool,
    /// It has been told, and listens no more.
    is_refused: bool,
}

const WRITE_ON: u64 = 1;
const READ_AGAIN: u64 = 2;
const LEAVE: u64 = 3;
const VANISH: u64 = 4;

impl Client {
    pub(super) fn new(
        protocol: Rc<dyn Protocol>,
        common: Common,
        requests: Vec<Request>,
        habit: Habit,
        verdict: Rc<RefCell<Verdict>>,
    ) -> Self {
        let mut unsent: VecDeque<u8> = requests.iter().flat_map(|request| request.bytes.clone()).collect();
        match &habit {
            Habit::Truncates { bytes } => unsent.truncate(unsent.len().saturating_sub(*bytes)),
            Habit::Nonsense { bytes } => unsent.extend(bytes),
            _ => {}
        }
        let is_malformed = match &habit {
            Habit::Nonsense { bytes } => !bytes.is_empty(),
            Habit::Truncates { .. } => true,
            _ => false,
        };
        let waiting: VecDeque<Request> =
            requests.into_iter().filter(|request| request.owed == Owed::Reply).collect();
        verdict.borrow_mut().waiting = waiting.len();
        Self {
            protocol,
            common,
            unsent,
            waiting,
            input: Vec::new(),
            habit,
            verdict,
            unpaused_bytes: 0,
            pauses_left: PAUSES_MAX,
            is_malformed,
            is_refused: false,
        }
    }

    fn write_some(&mut self, io: &mut PeerIo<'_>) {
        let most = if let Habit::Trickle { bytes, .. } = self.habit { bytes } else { usize::MAX };
        let part: Vec<u8> = self.unsent.drain(..most.min(self.unsent.len())).collect();
        io.write(&part);
        if !self.unsent.is_empty()
            && let Habit::Trickle { every_ns, .. } = self.habit
        {
            io.timer(every_ns, WRITE_ON);
        }
        if matches!(self.habit, Habit::HalfCloses | Habit::Truncates { .. }) {
            io.shutdown_write();
        }
    }

    /// Takes the replies that are there.
    fn read(&mut self, has_ended: bool) -> Result<(), String> {
        while !self.input.is_empty() && !self.is_refused {
            let cut = match self.waiting.front() {
                Some(request) => self.protocol.reply(request, &self.input, has_ended),
                None => Cut::Bad("a reply nobody asked for".into()),
            };
            let judged = match (&cut, self.waiting.front()) {
                (Cut::More, _) => return Ok(()),
                (Cut::Whole(len), Some(request)) => self.protocol.judge(request, &self.input[..*len]),
                (Cut::Bad(what), _) => Err(format!("{what}: {}", shown(&self.input))),
                (Cut::Whole(_), None) => Err("a reply nobody asked for".into()),
            };
            let mut verdict = self.verdict.borrow_mut();
            let refusal =
                if self.is_malformed { self.protocol.refusal(&self.input) } else { Cut::Bad("".into()) };
            match judged {
                Ok(Judged::Served) => verdict.answered += 1,
                Ok(Judged::Failed) => {
                    verdict.failed += 1;
                    if let (Some(request), Cut::Whole(len)) = (self.waiting.front(), &cut) {
                        let told = || format!("{} by {}", shown(&request.bytes), shown(&self.input[..*len]));
                        verdict.first_failed.get_or_insert_with(told);
                    }
                }
                Err(_) if refusal == Cut::More => return Ok(()),
                // Once told, nothing follows that it had a right to.
                Err(_) if matches!(refusal, Cut::Whole(_)) => {
                    self.waiting.clear();
                    self.is_refused = true;
                    return Ok(());
                }
                Err(wrong) => return Err(wrong),
            }
            self.waiting.pop_front();
            let Cut::Whole(len) = cut else { return Ok(()) };
            self.input.drain(..len);
        }
        Ok(())
    }

    fn note(&mut self, io: &mut PeerIo<'_>) {
        let mut verdict = self.verdict.borrow_mut();
        verdict.waiting = self.waiting.len();
        let is_done = self.waiting.is_empty() && self.unsent.is_empty();
        if is_done && !verdict.finished && (!self.is_malformed || self.is_refused) {
            verdict.finished = true;
            verdict.finished_ns = io.now_ns();
            io.timer(STAYS_NS, LEAVE);
        }
    }

    /// What is wrong ends it; after a lie it only ends.
    fn object(&mut self, io: &mut PeerIo<'_>, wrong: String) {
        let mut verdict = self.verdict.borrow_mut();
        if self.common.has_lied.get() {
            verdict.left = true;
        } else {
            verdict.wrong.get_or_insert(wrong);
        }
        io.reset();
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        if let Habit::Vanishes { after_ns } = self.habit {
            io.timer(after_ns, VANISH);
        }
        self.write_some(io);
        // Who is owed nothing has all of it.
        self.note(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        if let Err(wrong) = self.read(false) {
            return self.object(io, wrong);
        }
        self.note(io);
        self.unpaused_bytes += data.len();
        if let Habit::SlowReader { every_bytes, pause_ns } = self.habit
            && self.unpaused_bytes >= every_bytes
            && self.pauses_left > 0
        {
            self.pauses_left -= 1;
            self.unpaused_bytes = 0;
            io.pause_reading(true);
            io.timer(pause_ns, READ_AGAIN);
        }
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        if let Err(wrong) = self.read(true) {
            return self.object(io, wrong);
        }
        if !self.input.is_empty() && !self.is_refused && !self.protocol.may_end_anywhere() {
            let wrong = format!("a clean end inside a reply: {}", shown(&self.input));
            return self.object(io, wrong);
        }
        self.note(io);
        self.verdict.borrow_mut().closed = true;
        io.close();
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        self.verdict.borrow_mut().closed = true;
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        match id {
            WRITE_ON => {
                self.write_some(io);
                self.note(io);
            }
            READ_AGAIN => io.pause_reading(false),
            VANISH => {
                self.verdict.borrow_mut().left = true;
                io.reset();
            }
            _ => {
                self.verdict.borrow_mut().left = true;
                io.close();
            }
        }
    }
}
