//! Every opcode of the binary protocol, quiet ones included.
//!
//! Promises: a byte and its opcode map to each other without loss.
//! Source: memcached binary protocol revamped, §3.3; `protocol_binary.h` of memcached for get-and-touch.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $byte:literal,)*) => {
        /// Command of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $byte,)*
        }

        impl Opcode {
            /// Returns the opcode that travels as `byte`, or `None` if the protocol defines none.
            pub fn from_byte(byte: u8) -> Option<Opcode> {
                match byte {
                    $($byte => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// Reads an item.
    Get = 0x00,
    /// Writes an item whether or not it exists.
    Set = 0x01,
    /// Writes an item that must not exist.
    Add = 0x02,
    /// Writes an item that must exist.
    Replace = 0x03,
    /// Removes an item.
    Delete = 0x04,
    /// Adds to a decimal number.
    Increment = 0x05,
    /// Subtracts from a decimal number, stopping at zero.
    Decrement = 0x06,
    /// Closes the connection after a reply.
    Quit = 0x07,
    /// Removes every item.
    Flush = 0x08,
    /// Reads an item; a miss has no reply.
    GetQ = 0x09,
    /// Does nothing, with a reply: the end of a batch of quiet requests.
    Noop = 0x0a,
    /// Asks for the version of the server.
    Version = 0x0b,
    /// Reads an item and repeats its key in the reply.
    GetK = 0x0c,
    /// Quiet [`Opcode::GetK`]: a miss has no reply.
    GetKQ = 0x0d,
    /// Writes bytes after an existing value.
    Append = 0x0e,
    /// Writes bytes before an existing value.
    Prepend = 0x0f,
    /// Asks for statistics: many replies, the last one empty.
    Stat = 0x10,
    /// Quiet [`Opcode::Set`]: success has no reply.
    SetQ = 0x11,
    /// Quiet [`Opcode::Add`].
    AddQ = 0x12,
    /// Quiet [`Opcode::Replace`].
    ReplaceQ = 0x13,
    /// Quiet [`Opcode::Delete`].
    DeleteQ = 0x14,
    /// Quiet [`Opcode::Increment`].
    IncrementQ = 0x15,
    /// Quiet [`Opcode::Decrement`].
    DecrementQ = 0x16,
    /// Closes the connection without a reply.
    QuitQ = 0x17,
    /// Quiet [`Opcode::Flush`].
    FlushQ = 0x18,
    /// Quiet [`Opcode::Append`].
    AppendQ = 0x19,
    /// Quiet [`Opcode::Prepend`].
    PrependQ = 0x1a,
    /// Sets how much the server logs.
    Verbosity = 0x1b,
    /// Sets the expiry of an item.
    Touch = 0x1c,
    /// Reads an item and sets its expiry.
    Gat = 0x1d,
    /// Quiet [`Opcode::Gat`].
    GatQ = 0x1e,
    /// Lists the authentication mechanisms.
    SaslListMechs = 0x20,
    /// Starts an authentication.
    SaslAuth = 0x21,
    /// Continues an authentication.
    SaslStep = 0x22,
    /// Reads an item with its key and sets its expiry.
    GatK = 0x23,
    /// Quiet [`Opcode::GatK`].
    GatKQ = 0x24,
    /// Reads a range.
    RGet = 0x30,
    /// Writes in a range.
    RSet = 0x31,
    /// Quiet [`Opcode::RSet`].
    RSetQ = 0x32,
    /// Appends in a range.
    RAppend = 0x33,
    /// Quiet [`Opcode::RAppend`].
    RAppendQ = 0x34,
    /// Prepends in a range.
    RPrepend = 0x35,
    /// Quiet [`Opcode::RPrepend`].
    RPrependQ = 0x36,
    /// Deletes in a range.
    RDelete = 0x37,
    /// Quiet [`Opcode::RDelete`].
    RDeleteQ = 0x38,
    /// Increments in a range.
    RIncr = 0x39,
    /// Quiet [`Opcode::RIncr`].
    RIncrQ = 0x3a,
    /// Decrements in a range.
    RDecr = 0x3b,
    /// Quiet [`Opcode::RDecr`].
    RDecrQ = 0x3c,
    /// Sets the state of a vbucket.
    SetVbucket = 0x3d,
    /// Reads the state of a vbucket.
    GetVbucket = 0x3e,
    /// Deletes a vbucket.
    DelVbucket = 0x3f,
    /// Opens a replication stream.
    TapConnect = 0x40,
    /// A change in a replication stream.
    TapMutation = 0x41,
    /// A removal in a replication stream.
    TapDelete = 0x42,
    /// A flush in a replication stream.
    TapFlush = 0x43,
    /// An implementation's own message in a replication stream.
    TapOpaque = 0x44,
    /// A vbucket change in a replication stream.
    TapVbucketSet = 0x45,
    /// Start of a checkpoint in a replication stream.
    TapCheckpointStart = 0x46,
    /// End of a checkpoint in a replication stream.
    TapCheckpointEnd = 0x47,
}

impl Opcode {
    /// Returns the byte that travels.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// Returns whether the usual result (a miss of a read, success of a write) has no reply.
    pub fn is_quiet(self) -> bool {
        self.non_quiet() != self
    }

    /// Returns the non-quiet opcode of the same operation; itself if it is not quiet.
    pub fn non_quiet(self) -> Opcode {
        match self {
            Opcode::GetQ => Opcode::Get,
            Opcode::GetKQ => Opcode::GetK,
            Opcode::SetQ => Opcode::Set,
            Opcode::AddQ => Opcode::Add,
            Opcode::ReplaceQ => Opcode::Replace,
            Opcode::DeleteQ => Opcode::Delete,
            Opcode::IncrementQ => Opcode::Increment,
            Opcode::DecrementQ => Opcode::Decrement,
            Opcode::QuitQ => Opcode::Quit,
            Opcode::FlushQ => Opcode::Flush,
            Opcode::AppendQ => Opcode::Append,
            Opcode::PrependQ => Opcode::Prepend,
            Opcode::GatQ => Opcode::Gat,
            Opcode::GatKQ => Opcode::GatK,
            Opcode::RSetQ => Opcode::RSet,
            Opcode::RAppendQ => Opcode::RAppend,
            Opcode::RPrependQ => Opcode::RPrepend,
            Opcode::RDeleteQ => Opcode::RDelete,
            Opcode::RIncrQ => Opcode::RIncr,
            Opcode::RDecrQ => Opcode::RDecr,
            other => other,
        }
    }
}
