//! Causes for which a parser rejects the bytes of a peer: one table for the compiler, both engines and the platform.

use crate::program::FailureReason;

/// Cause of a parse fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FaultCause {
    /// A check, a literal or a choice of the grammar does not match.
    Malformed = 1,
    /// Arithmetic on lengths leaves its range.
    Arithmetic = 2,
    /// A field is longer than its bound.
    TooLong = 3,
    /// The message asks for what the grammar does not support.
    Unsupported = 4,
    /// The name of the message's subject, a URI or a key, is longer than its bound.
    NameTooLong = 5,
}

/// One row of the table.
struct Row {
    cause: FaultCause,
    /// The word behind `&fault`, where a grammar can name the cause.
    name: Option<&'static str>,
    /// For logs.
    text: &'static str,
    /// Reason of the platform's failure reply to a request with this fault.
    reason: FailureReason,
}

/// All causes; a cause with number `n` is row `n - 1`.
const TABLE: [Row; FaultCause::COUNT] = [
    Row {
        cause: FaultCause::Malformed,
        name: Some("malformed"),
        text: "a check of the grammar failed",
        reason: FailureReason::Malformed,
    },
    Row {
        cause: FaultCause::Arithmetic,
        name: None,
        text: "lengths do not add up",
        reason: FailureReason::Malformed,
    },
    Row {
        cause: FaultCause::TooLong,
        name: Some("too_long"),
        text: "a field is longer than its bound in the program's record, or in the grammar",
        reason: FailureReason::TooLong,
    },
    Row {
        cause: FaultCause::Unsupported,
        name: Some("unsupported"),
        text: "the grammar does not support what is asked for",
        reason: FailureReason::Unsupported,
    },
    Row {
        cause: FaultCause::NameTooLong,
        name: Some("name_too_long"),
        text: "the name of what is asked for is longer than its bound",
        reason: FailureReason::NameTooLong,
    },
];

const _: () = {
    let mut row = 0;
    while row < TABLE.len() {
        assert!(TABLE[row].cause as usize == row + 1, "rows are in the order of the numbers");
        row += 1;
    }
};

impl FaultCause {
    /// Number of causes.
    pub const COUNT: usize = 5;

    /// Returns all causes in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.cause)
    }

    /// Returns the number that stands for this cause in [`crate::ParseStep::to_word`] and in the text form of the IR;
    /// not 0.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the cause of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|cause| cause.number() == number)
    }

    /// Returns the cause that `&fault = NAME` names in a grammar.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == Some(name)).map(|row| row.cause)
    }

    /// Returns the word behind `&fault`; `None` for a cause that no grammar can name.
    pub fn name(self) -> Option<&'static str> {
        self.row().name
    }

    /// Says in words why, for logs.
    pub fn text(self) -> &'static str {
        self.row().text
    }

    /// Returns how the platform answers a request with this fault.
    pub fn reason(self) -> FailureReason {
        self.row().reason
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::FaultCause;
    use crate::engine::ParseStep;

    #[test]
    fn every_cause_survives_its_number_its_name_and_a_step() {
        assert_eq!(FaultCause::all().count(), FaultCause::COUNT);
        for cause in FaultCause::all() {
            assert_eq!(FaultCause::from_number(cause.number()), Some(cause));
            assert_eq!(cause.name().map(FaultCause::from_name), cause.name().map(|_| Some(cause)));
            let step = ParseStep::Fault { field: 7, cause };
            assert_eq!(ParseStep::from_word(step.to_word()), step);
        }
        assert_eq!((FaultCause::from_number(0), FaultCause::from_number(6)), (None, None));
    }
}
