//! Planted bugs: engines that lie to the platform in one way each, to show that the checks can fail.
//! A check that no planted bug makes fail checks nothing. Bugs of the platform itself are planted by hand; both kinds,
//! with what found them, are listed in `docs/internals/simulation.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flick_abi::frame::{SLOT_FLAGS, SLOT_NON_QUIET, SLOT_TOTAL};
use flick_abi::{Engine, Frame, FuncId, MessageFlags, ParseStep, RuleCall, RuleOutcome};

use super::Subject;

/// Planted bug of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing: the checks must pass.
    None,
    /// No reply is silent: quiet requests get unsolicited replies.
    NothingIsSilent,
    /// Every reply to a quiet request is silent: errors and hits get lost.
    MuchIsSilent,
    /// No reply is followed by another: the last statistics go to the next queued request.
    NothingFollows,
    /// Now and then a message is said to be a byte longer than it is.
    OneByteLonger,
    /// Quiet requests are sent as they are: what a silent server answers next is taken for their reply.
    NothingIsNonQuiet,
    /// Nothing ends a session: `quit` goes to a shared connection.
    NothingEnds,
    /// Failures are answered with another request's opaque.
    FailuresToAnother,
}

impl Lie {
    /// All of them.
    pub const ALL: [Lie; 7] = [
        Lie::NothingIsSilent,
        Lie::MuchIsSilent,
        Lie::NothingFollows,
        Lie::OneByteLonger,
        Lie::NothingIsNonQuiet,
        Lie::NothingEnds,
        Lie::FailuresToAnother,
    ];
}

/// Messages between two lies about a length.
const LENGTH_LIE_EVERY: u64 = 50;

struct Liar {
    honest: Arc<dyn Engine>,
    lie: Lie,
    parsed_count: AtomicU64,
    reply_flags: Option<FuncId>,
    opcode_slot: usize,
    opaque_slot: usize,
}

impl Liar {
    fn lie_about_flags(&self, flags: u64, is_judging_a_reply: bool) -> u64 {
        match self.lie {
            Lie::NothingIsSilent => flags & !MessageFlags::SILENT,
            Lie::MuchIsSilent if is_judging_a_reply && flags & MessageFlags::MORE == 0 => {
                flags | MessageFlags::SILENT
            }
            Lie::NothingFollows => flags & !MessageFlags::MORE,
            Lie::NothingEnds => flags & !(MessageFlags::ENDS | MessageFlags::ONE_WAY),
            _ => flags,
        }
    }
}

impl Engine for Liar {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        let step = self.honest.parse(parser, frame, data);
        if step != ParseStep::Done {
            return step;
        }
        frame.slots[SLOT_FLAGS] =
            self.lie_about_flags(frame.slots[SLOT_FLAGS], Some(parser) == self.reply_flags);
        match self.lie {
            Lie::NothingIsNonQuiet => frame.slots[SLOT_NON_QUIET] = frame.slots[self.opcode_slot],
            Lie::OneByteLonger
                if self.parsed_count.fetch_add(1, Ordering::Relaxed) % LENGTH_LIE_EVERY
                    == LENGTH_LIE_EVERY - 1 =>
            {
                frame.slots[SLOT_TOTAL] += 1;
            }
            _ => {}
        }
        step
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        self.honest.run(rule, call)
    }

    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        self.honest.order(order, call)
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        let mut frame = frame.clone();
        if self.lie == Lie::FailuresToAnother {
            frame.slots[self.opaque_slot] ^= 1;
        }
        self.honest.build(builder, &frame, out)
    }
}

/// The same program with an engine that lies.
pub fn lying(subject: &Subject, lie: Lie) -> Subject {
    let protocol = &subject.program.protocols[0];
    let slot =
        |field: Option<&flick_abi::EchoField>| field.map_or(0, |field| usize::from(field.request.slot));
    let view = subject.program.channels[1].view.as_ref();
    let liar = Liar {
        honest: Arc::clone(&subject.engine),
        lie,
        parsed_count: AtomicU64::new(0),
        reply_flags: view.and_then(|view| view.reply_flags),
        opcode_slot: slot(protocol.made_non_quiet()),
        opaque_slot: slot(protocol.correlated()),
    };
    Subject { program: Arc::clone(&subject.program), engine: Arc::new(liar) }
}
