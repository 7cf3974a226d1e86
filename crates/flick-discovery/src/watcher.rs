//! Threads that read sources while the service runs and hand every new list to the workers.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use flick_runtime::BackendSetHandle;
use tracing::{info, warn};

use crate::reader::SourceReader;

/// A channel whose list is updated from a source.
pub struct WatchedChannel {
    /// Name of its service.
    pub service: String,
    /// The backend lists of the service.
    pub backends: BackendSetHandle,
    /// Name of the channel.
    pub channel: String,
    /// The source.
    pub reader: SourceReader,
    /// Delay before the first read of the source.
    pub next_read: Duration,
}

/// Threads that update backend lists. They stop when this is dropped.
#[derive(Default)]
pub struct Watchers {
    /// Dropping a sender stops its thread.
    _stop: Vec<Sender<()>>,
}

impl Watchers {
    /// Starts a thread for each channel.
    ///
    /// Errors: a thread cannot be started.
    pub fn start(channels: Vec<WatchedChannel>) -> std::io::Result<Self> {
        let start = |mut channel: WatchedChannel| {
            channel.log_empty();
            let (stop, stopped) = mpsc::channel();
            let watch = move || {
                let mut delay = channel.next_read;
                while stopped.recv_timeout(delay) == Err(RecvTimeoutError::Timeout) {
                    delay = channel.update();
                }
            };
            // The thread is detached: one that waits for a name server ends by itself after a bounded time.
            std::thread::Builder::new().name("backends".to_owned()).spawn(watch).map(|_| stop)
        };
        Ok(Self { _stop: channels.into_iter().map(start).collect::<Result<_, _>>()? })
    }
}

impl WatchedChannel {
    /// Warns of an empty list, once until it is not empty.
    fn log_empty(&mut self) {
        if let Some(why) = self.reader.newly_empty() {
            let (service, channel, source) = (&self.service, &self.channel, self.reader.source());
            warn!(service, channel, %source, why, "backend list is empty: requests fail");
        }
    }

    /// Reads the source once and publishes a new list. Returns when to read again.
    fn update(&mut self) -> Duration {
        let (list, next_read) = self.reader.read();
        self.reader.log_partial();
        let (service, channel, source) = (&self.service, &self.channel, self.reader.source().to_string());
        let published = list.and_then(|list| {
            let Some(list) = list else { return Ok(None) };
            let is_new = self.backends.set(channel, &list)?;
            self.reader.published(&list);
            Ok(Some((is_new, list.len())))
        });
        match published {
            Ok(Some((is_new, backends))) => {
                self.reader.clear_error();
                if is_new {
                    info!(service, channel, source, backends, "backend list updated");
                }
                self.log_empty();
            }
            Ok(None) => {}
            Err(error) => {
                if self.reader.is_new_error(&error) {
                    warn!(service, channel, source, error, "backend list not updated");
                }
            }
        }
        next_read
    }
}
