//! Loads dictionary entries into the processor's cache before rules read them: those of several pipelined requests at
//! once, so that their cache misses overlap.
//! Promises: what it does changes no answer; it parses at most `PRELOAD_PARSE_BYTES_MAX` bytes of a request, once, and
//! leaves the frames of requests that are whole to the run of the step.
//! Not here: which look-up a rule does (`flick_ir::lookups`).

use flick_abi::frame::SLOT_CARRIED;
use flick_abi::{BytesRef, Frame, KeyLookup, ParseStep};
use flick_buffers::Slice;
use flick_dict::limits::PRELOAD_KEYS_MAX;
use flick_net::Driver;

use super::Worker;
use crate::limits::PRELOAD_PARSE_BYTES_MAX;
use crate::rules::scratch::Scratch;
use crate::run_queue::Task;
use crate::setup::Setup;
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Loads the entries of the request whose rules run next, and of those that have arrived behind it, unless that has
    /// been done. A request alone gains nothing.
    #[inline]
    pub(super) fn preload(&mut self, key: Key, scratch: &mut Scratch, message: &Slice) {
        scratch.ahead_len = 0;
        let Some(lookup) = self.ctx.setup().lookup else { return };
        if self.rules.take_preloaded() {
            return;
        }
        let Some(session) = self.downstream.client(key) else { return };
        if let Some(piece) = session.inbox().piece(self.io.pieces())
            && piece.len() > message.len()
        {
            let piece = piece.clone();
            self.preload_piece(lookup, scratch, &piece, message.len());
        }
    }

    /// Loads the entries of the first requests of the clients whose tasks are next in the run queue. Returns for how
    /// many tasks that is done.
    pub(super) fn preload_tasks(&mut self) -> usize {
        let setup = self.ctx.setup();
        let Some(lookup) = setup.lookup.filter(|_| self.tasks.len() > 1) else { return usize::MAX };
        let mut scratch = self.rules.take_scratch();
        let mut keys: [&[u8]; PRELOAD_KEYS_MAX] = [&[]; PRELOAD_KEYS_MAX];
        let (mut count, mut tasks) = (0, 0);
        for (task, frame) in self.tasks.iter().zip(&mut scratch.ahead) {
            tasks += 1;
            let Task::Session(session) = task else { continue };
            let Some(session) = self.downstream.client(*session) else { continue };
            let Some(piece) = session.inbox().piece(self.io.pieces()) else { continue };
            let carried = session.inbox().carried();
            if let Some(key) = key_ahead(setup, lookup, (frame, carried), piece.bytes()) {
                keys[count] = key;
                count += 1;
            }
        }
        if count > 1 {
            self.rules.host_mut().state().dict(lookup.dict).preload(keys[..count].iter().copied());
        }
        self.rules.return_scratch(scratch);
        tasks
    }

    fn preload_piece(&mut self, lookup: KeyLookup, scratch: &mut Scratch, piece: &Slice, first_len: u32) {
        let setup = self.ctx.setup();
        let mut keys: [&[u8]; PRELOAD_KEYS_MAX] = [&[]; PRELOAD_KEYS_MAX];
        keys[0] = key(&scratch.frame, lookup, piece.bytes());
        let (mut count, mut rest) = (1, &piece.bytes()[first_len as usize..]);
        let mut carried = scratch.frame.slots[SLOT_CARRIED];
        for frame in &mut scratch.ahead {
            let Some(key) = key_ahead(setup, lookup, (frame, carried), rest) else { break };
            keys[count] = key;
            count += 1;
            carried = frame.slots[SLOT_CARRIED];
            rest = usize::try_from(frame.total_bytes()).ok().and_then(|len| rest.get(len..)).unwrap_or(&[]);
        }
        scratch.ahead_len = count - 1;
        self.rules.host_mut().state().dict(lookup.dict).preload(keys[..count].iter().copied());
        self.rules.set_preloaded(count as u32 - 1);
    }
}

/// Parses the request in front of `bytes`, to which the one before carries that number, and returns its key; `None` if
/// it is not whole in the first `PRELOAD_PARSE_BYTES_MAX` of them.
#[inline]
fn key_ahead<'a>(
    setup: &Setup,
    lookup: KeyLookup,
    (frame, carried): (&mut Frame, u64),
    bytes: &'a [u8],
) -> Option<&'a [u8]> {
    let head = &bytes[..bytes.len().min(PRELOAD_PARSE_BYTES_MAX)];
    frame.restart();
    frame.slots[SLOT_CARRIED] = carried;
    let parser = setup.view(setup.listened).parse_request;
    let is_whole = !head.is_empty() && setup.engine.parse(parser, frame, head) == ParseStep::Done;
    is_whole.then(|| key(frame, lookup, head))
}

/// Returns the key of a message, as far as it has arrived. A message without the field, which is empty then, may have a
/// list of keys: the first item of its lists.
fn key<'a>(frame: &Frame, lookup: KeyLookup, message: &'a [u8]) -> &'a [u8] {
    let resolve =
        |word: u64| BytesRef(word).resolve(|_| Some(message), &[], &[]).filter(|bytes| !bytes.is_empty());
    let field = resolve(frame.slots[usize::from(lookup.slot)]);
    let bytes = field.or_else(|| resolve(*frame.items().first()?)).unwrap_or(&[]);
    &bytes[..bytes.len().min(lookup.bytes_max as usize)]
}

#[cfg(test)]
mod tests {
    use flick_abi::{BytesRef, Frame, KeyLookup, Region};

    use super::key;

    #[test]
    fn key_of_a_list_was_not_loaded_ahead() {
        let lookup = KeyLookup { dict: 0, slot: 14, bytes_max: 3 };
        let part = |offset, len| BytesRef::new(Region::Message, offset, len).0;
        let message = b"get first second\r\n";
        let mut frame = Frame::new();
        for (field, first) in [(part(0, 0), "fir"), (BytesRef::MISSING.0, "fir"), (part(10, 6), "sec")] {
            frame.restart();
            frame.slots[14] = field;
            frame.push_item(part(4, 5));
            frame.push_item(part(10, 6));
            assert_eq!(key(&frame, lookup, message), first.as_bytes());
        }
        // Of a message that was cut, or has no key, nothing is looked for.
        assert_eq!(key(&frame, lookup, b"get fi"), b"");
        assert_eq!(key(&Frame::new(), lookup, message), b"");
    }
}
