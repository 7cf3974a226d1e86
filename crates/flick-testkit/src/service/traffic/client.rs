//! A client of any protocol that pipelines its requests and checks every reply: in order, its own, no more than it
//! asked.
//! Promises: detects every unsolicited or wrong reply, unless a server has lied before (`Common::has_lied`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo};

use super::{Common, Cut, Judged, Owed, TrafficProtocol, TrafficRequest, shown};
use crate::service::client::{Habit, Verdict};
use crate::service::conduct::Conduct;

pub(super) struct TrafficClient {
    protocol: Rc<dyn TrafficProtocol>,
    common: Common,
    conduct: Conduct,
    waiting: VecDeque<TrafficRequest>,
    input: Vec<u8>,
    verdict: Rc<RefCell<Verdict>>,
    /// It has sent what is no request, and may get an error response.
    is_malformed: bool,
    /// It has got the error response, and ignores the rest.
    is_refused: bool,
}

impl TrafficClient {
    pub(super) fn new(
        protocol: Rc<dyn TrafficProtocol>,
        common: Common,
        requests: Vec<TrafficRequest>,
        habit: Habit,
        verdict: Rc<RefCell<Verdict>>,
    ) -> Self {
        let unsent = requests.iter().flat_map(|request| request.bytes.clone()).collect();
        let is_malformed = match &habit {
            Habit::Nonsense { bytes } => !bytes.is_empty(),
            Habit::Truncates { .. } => true,
            _ => false,
        };
        let waiting: VecDeque<TrafficRequest> =
            requests.into_iter().filter(|request| request.owed == Owed::Reply).collect();
        verdict.borrow_mut().waiting = waiting.len();
        Self {
            protocol,
            common,
            conduct: Conduct::new(unsent, habit, Rc::clone(&verdict)),
            waiting,
            input: Vec::new(),
            verdict,
            is_malformed,
            is_refused: false,
        }
    }

    /// Takes the replies that are there.
    fn read(&mut self, has_ended: bool) -> Result<(), String> {
        while !self.input.is_empty() && !self.is_refused {
            let cut = match self.waiting.front() {
                Some(request) => self.protocol.reply(request, &self.input, has_ended),
                None => Cut::Bad("an unsolicited reply".into()),
            };
            let judged = match (&cut, self.waiting.front()) {
                (Cut::More, _) => return Ok(()),
                (Cut::Whole(len), Some(request)) => self.protocol.judge(request, &self.input[..*len]),
                (Cut::Bad(what), _) => Err(format!("{what}: {}", shown(&self.input))),
                (Cut::Whole(_), None) => Err("an unsolicited reply".into()),
            };
            let mut verdict = self.verdict.borrow_mut();
            let refusal =
                if self.is_malformed { self.protocol.refusal(&self.input) } else { Cut::Bad("".into()) };
            match judged {
                Ok(Judged::Served) => verdict.answered += 1,
                Ok(Judged::Failed) => {
                    verdict.failed += 1;
                    if let (Some(request), Cut::Whole(len)) = (self.waiting.front(), &cut) {
                        let delivered =
                            || format!("{} by {}", shown(&request.bytes), shown(&self.input[..*len]));
                        verdict.first_failed.get_or_insert_with(delivered);
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
        let is_done = self.waiting.is_empty() && self.conduct.has_sent_all();
        if is_done && !verdict.finished && (!self.is_malformed || self.is_refused) {
            drop(verdict);
            self.conduct.finish(io);
        }
    }

    /// The service has ended the connection.
    fn has_ended(&self, io: &PeerIo<'_>) {
        let mut verdict = self.verdict.borrow_mut();
        (verdict.closed, verdict.closed_ns) = (true, io.now_ns());
    }

    /// Resets the connection because of an error in the input, which it notes unless a server has lied.
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

impl Actor for TrafficClient {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.conduct.begin(io);
        // Who is owed nothing has all of it.
        self.note(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        if let Err(wrong) = self.read(false) {
            return self.object(io, wrong);
        }
        self.note(io);
        self.conduct.has_read(io, data.len());
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        if let Err(wrong) = self.read(true) {
            return self.object(io, wrong);
        }
        if !self.input.is_empty() && !self.is_refused && !self.protocol.may_end_behind(&self.input) {
            let wrong = format!("a clean end inside a reply: {}", shown(&self.input));
            return self.object(io, wrong);
        }
        self.note(io);
        self.has_ended(io);
        io.close();
    }

    fn on_reset(&mut self, io: &mut PeerIo<'_>) {
        self.has_ended(io);
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        if self.conduct.on_timer(io, id) {
            self.note(io);
        }
    }
}
