//! Describes generated code to the unwinder of this process, so that a panic in a helper passes through it.
//! Promises: every function of a program has an entry; the entries are registered exactly as long as
//! [`FrameRegistration`] lives. Generated code owns nothing, so no frame of it has anything to clean up.
//! Source: System V ABI, `.eh_frame`; the calls are libgcc's, which LLVM's libunwind also has.

mod raw;

use cranelift_codegen::Context;
use cranelift_codegen::gimli::RunTimeEndian;
use cranelift_codegen::gimli::write::{Address, EhFrame, EndianVec, FrameTable};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInfo;
use cranelift_codegen::isa::unwind::systemv::UnwindInfo as FrameInfo;

use crate::options::CompileError;

pub(crate) use raw::FrameRegistration;

/// Unwind information of each function of a program, in the order in which they are compiled.
#[derive(Default)]
pub(crate) struct Frames {
    infos: Vec<FrameInfo>,
}

impl Frames {
    /// Adds the function that `context` has compiled.
    ///
    /// Errors: Cranelift describes no frames of this machine.
    pub(crate) fn add(&mut self, context: &Context, isa: &dyn TargetIsa) -> Result<(), CompileError> {
        let code = context.compiled_code().expect("the function was compiled without an error");
        match code.create_unwind_info(isa) {
            Ok(Some(UnwindInfo::SystemV(info))) => {
                self.infos.push(info);
                Ok(())
            }
            Ok(_) => Err(CompileError::Machine("its frames cannot be unwound".to_owned())),
            Err(error) => Err(CompileError::Backend(format!("no frame is described: {error}"))),
        }
    }

    /// Makes all functions known to the unwinder; `addresses[i]` is where the `i`th function added is.
    ///
    /// Errors: as [`Frames::add`].
    pub(crate) fn register(
        self,
        isa: &dyn TargetIsa,
        addresses: impl ExactSizeIterator<Item = usize>,
    ) -> Result<FrameRegistration, CompileError> {
        assert!(addresses.len() == self.infos.len(), "every function has a frame");
        let cie = isa.create_systemv_cie();
        let cie = cie.ok_or_else(|| CompileError::Machine("its frames cannot be unwound".to_owned()))?;
        let mut table = FrameTable::default();
        let cie = table.add_cie(cie);
        for (info, address) in self.infos.iter().zip(addresses) {
            table.add_fde(cie, info.to_fde(Address::Constant(address as u64)));
        }
        let mut section = EhFrame(EndianVec::new(RunTimeEndian::default()));
        let written = table.write_eh_frame(&mut section);
        written.map_err(|error| CompileError::Backend(format!("no frame is described: {error}")))?;
        let mut bytes = section.0.into_vec();
        // A length of 0 ends the section.
        bytes.extend([0; 4]);
        Ok(FrameRegistration::new(bytes))
    }
}
