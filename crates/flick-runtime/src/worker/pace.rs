//! The pace at which a client must send a request: a slow upload goes on as long as it goes on fast enough.
//! Promises: a client that sends less than [`CLIENT_BYTES_PER_SECOND_MIN`] over a whole `client_request` period is
//! answered with the grammar's error response for slow requests, if there is one, and its connection ends.

use flick_abi::{FailureReason, Frame};
use flick_net::Driver;

use super::Worker;
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::stream::Upload;
use crate::limits::CLIENT_BYTES_PER_SECOND_MIN;
use crate::slab::Key;

/// Nanoseconds of a second.
const S: u128 = 1_000_000_000;

impl<D: Driver> Worker<D> {
    /// Begins a period in which a client must send a request, or enough of it.
    pub(super) fn begin_pace(&mut self, key: Key) {
        let period_ns = self.ctx.setup().timeouts.client_request.as_nanos() as u64;
        if let Some(session) = self.downstream.client_mut(key) {
            session.take_paced_bytes();
            self.set_deadline(key, DeadlineKind::Message, self.io.now_ns() + period_ns);
        }
    }

    /// A period is over, and the request is not complete.
    pub(super) fn request_is_late(&mut self, key: Key) {
        let period = self.ctx.setup().timeouts.client_request;
        let Some(session) = self.downstream.client_mut(key) else { return };
        let enough = u128::from(CLIENT_BYTES_PER_SECOND_MIN) * period.as_nanos() / S;
        if u128::from(session.take_paced_bytes()) >= enough.max(1) {
            self.begin_pace(key);
            return;
        }
        self.request_is_too_late(key);
    }

    /// A client is to blame for the time that its request has taken.
    pub(super) fn request_is_too_late(&mut self, key: Key) {
        self.observe.counters().client_request_timeouts.add(1);
        self.request_too_slow(key);
    }

    /// Answers a request that its client sends too slowly, and ends the connection.
    fn request_too_slow(&mut self, key: Key) {
        let has_words = self.ctx.setup().failure(FailureReason::TooSlow).is_some();
        let Some(session) = self.downstream.client_mut(key).filter(|_| has_words) else {
            self.end_session(key, true);
            return;
        };
        match session.stream_mut().take_upload() {
            Upload::None => {
                if session.inbox().begun(self.io.frames()).is_some() {
                    self.fail_begun(key, FailureReason::TooSlow);
                } else {
                    self.fail_new_request(key, &Frame::new(), FailureReason::TooSlow);
                }
            }
            upload => {
                session.stream_mut().end_after_reply();
                self.break_dedicated(upload, FailureReason::TooSlow);
            }
        }
        self.stop_reading(key);
        self.close_if_finished(key);
    }
}
