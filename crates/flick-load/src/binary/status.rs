//! Every response status of the binary protocol.
//!
//! Promises: a code and its status map to each other without loss; [`Status::text`] is what memcached itself writes
//! into the body of an error.
//! Source: memcached binary protocol revamped, §3.2; `protocol_binary.h` of memcached.

/// Status of a response: the result of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Status {
    /// Done.
    NoError = 0x0000,
    /// No such item.
    KeyNotFound = 0x0001,
    /// The item exists, or its version is another one.
    KeyExists = 0x0002,
    /// The value is longer than the server keeps.
    ValueTooLarge = 0x0003,
    /// The request is malformed.
    InvalidArguments = 0x0004,
    /// The condition of the write does not hold.
    NotStored = 0x0005,
    /// The value is not a decimal number.
    NonNumericValue = 0x0006,
    /// The vbucket belongs to another server.
    WrongVbucket = 0x0007,
    /// Authentication failed.
    AuthError = 0x0020,
    /// Authentication goes on.
    AuthContinue = 0x0021,
    /// The server does not know the opcode.
    UnknownCommand = 0x0081,
    /// The server cannot keep another item.
    OutOfMemory = 0x0082,
    /// The server knows the opcode and does not do it.
    NotSupported = 0x0083,
    /// Something broke inside the server, or a proxy could not reach it.
    InternalError = 0x0084,
    /// The server is busy.
    Busy = 0x0085,
    /// The server cannot answer now; asking again may help.
    TemporaryFailure = 0x0086,
}

impl Status {
    /// Every status, in the order of the codes.
    pub const ALL: [Status; 16] = [
        Status::NoError,
        Status::KeyNotFound,
        Status::KeyExists,
        Status::ValueTooLarge,
        Status::InvalidArguments,
        Status::NotStored,
        Status::NonNumericValue,
        Status::WrongVbucket,
        Status::AuthError,
        Status::AuthContinue,
        Status::UnknownCommand,
        Status::OutOfMemory,
        Status::NotSupported,
        Status::InternalError,
        Status::Busy,
        Status::TemporaryFailure,
    ];

    /// Returns the status that travels as `code`, or `None` if the protocol defines none.
    #[inline]
    pub fn from_code(code: u16) -> Option<Status> {
        if code == 0 {
            return Some(Status::NoError);
        }
        Status::ALL.into_iter().find(|status| status.code() == code)
    }

    /// Returns the code that travels.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Returns the words that go into the body of an error response.
    pub fn text(self) -> &'static str {
        match self {
            Status::NoError => "",
            Status::KeyNotFound => "Not found",
            Status::KeyExists => "Data exists for key.",
            Status::ValueTooLarge => "Too large.",
            Status::InvalidArguments => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NonNumericValue => "Non-numeric server-side value for incr or decr",
            Status::WrongVbucket => "Not my vbucket",
            Status::AuthError => "Auth failure.",
            Status::AuthContinue => "Auth continue.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
            Status::NotSupported => "Not supported",
            Status::InternalError => "Internal error",
            Status::Busy => "Busy",
            Status::TemporaryFailure => "Temporary failure",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::NoError => f.write_str("no error"),
            other => f.write_str(other.text()),
        }
    }
}
