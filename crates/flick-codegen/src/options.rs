//! Options of the compiler, and its errors.

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use flick_ir::VerifyError;

/// Optimisation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimise {
    /// As little as possible: no passes of ours, few of Cranelift's; for tests that compare.
    None,
    /// For speed.
    Speed,
}

/// Options of a compilation.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Optimisation level.
    pub optimise: Optimise,
    /// Let Cranelift check its own input; for tests.
    pub clif_verifier: bool,
    /// Let Cranelift prove each register allocation; for tests.
    pub regalloc_checker: bool,
    /// Keep the text of each function, for `--emit=clif|asm`.
    pub listings: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { optimise: Optimise::Speed, clif_verifier: false, regalloc_checker: false, listings: false }
    }
}

impl Options {
    /// Whether runs and needles are looked for sixteen bytes at a time: the machine can, and is asked to hurry.
    pub(crate) fn steps_by_sixteen(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.optimise == Optimise::Speed && std::arch::is_x86_feature_detected!("ssse3");
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// The machine this process runs on, with these options.
    pub(crate) fn isa(&self) -> Result<OwnedTargetIsa, CompileError> {
        let speed = if self.optimise == Optimise::Speed { "speed" } else { "none" };
        let flags = [
            ("opt_level", speed),
            ("enable_verifier", if self.clif_verifier { "true" } else { "false" }),
            ("regalloc_checker", if self.regalloc_checker { "true" } else { "false" }),
            ("use_colocated_libcalls", "false"),
            ("is_pic", "false"),
        ];
        let mut builder = settings::builder();
        for (name, value) in flags {
            builder.set(name, value).expect("Cranelift has these settings in the version we name");
        }
        let isa = cranelift_native::builder().map_err(|error| CompileError::Machine(error.to_owned()))?;
        isa.finish(settings::Flags::new(builder)).map_err(|error| CompileError::Machine(error.to_string()))
    }
}

/// Reason for which a module was not compiled.
#[derive(Clone, Debug)]
pub enum CompileError {
    /// The module is not well-formed.
    Invalid(Vec<VerifyError>),
    /// Cranelift does not know this machine.
    Machine(String),
    /// Cranelift refused or failed; with its message.
    Backend(String),
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompileError::Invalid(errors) => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                write!(f, "the program's code is not well-formed: {}", errors.join("; "))
            }
            CompileError::Machine(why) => write!(f, "no code can be made for this machine: {why}"),
            CompileError::Backend(why) => write!(f, "the code generator failed: {why}"),
        }
    }
}

impl std::error::Error for CompileError {}
