//! Reasons for which a program was not compiled.

use std::fmt;

use flick_check::{Diagnostic, RequestOptionError, Sources, render};
use flick_codegen::CompileError;

/// Reason for which a program was not compiled.
#[derive(Debug)]
pub enum CompileFailure {
    /// A file cannot be read, or hides a library file; in words.
    Load(String),
    /// The program is refused.
    Refused {
        /// Errors and warnings.
        diagnostics: Vec<Diagnostic>,
        /// The texts that the diagnostics point into.
        sources: Sources,
    },
    /// The file has no process.
    NoProcess,
    /// Its parsers cannot obey an operator's choice.
    RequestOption(RequestOptionError),
    /// No machine code can be generated.
    Codegen(CompileError),
}

impl fmt::Display for CompileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileFailure::Load(why) => f.write_str(why),
            CompileFailure::Refused { diagnostics, sources } => {
                let texts: Vec<String> =
                    diagnostics.iter().map(|diagnostic| render(diagnostic, sources, false)).collect();
                f.write_str(&texts.join("\n"))
            }
            CompileFailure::NoProcess => f.write_str(
                "the file has no process, so there is nothing to run; write one: \
                 `proc NAME: (TYPE/TYPE client, ...)`",
            ),
            CompileFailure::RequestOption(RequestOptionError::LogField(name)) => write!(
                f,
                "the access log cannot have the field `{name}`: grammar and program read too many others"
            ),
            CompileFailure::RequestOption(RequestOptionError::FieldsMax(allowed)) => {
                write!(f, "`max_request_fields` is above {allowed}, the maximum of the grammar")
            }
            CompileFailure::RequestOption(RequestOptionError::NameBytesMax(allowed)) => {
                write!(f, "`max_request_target` is above {allowed}B, the maximum of the grammar")
            }
            CompileFailure::Codegen(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompileFailure {}
