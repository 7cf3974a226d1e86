//! The unwinder's list of sections that were made at run time.
//! Promises: a section stays in memory, unchanged, from its registration until it has been taken off the list.

unsafe extern "C" {
    fn __register_frame(section: *const u8);
    fn __deregister_frame(section: *const u8);
}

/// An `.eh_frame` section that the unwinder knows until this is dropped.
#[derive(Debug)]
pub(crate) struct FrameRegistration {
    section: Box<[u8]>,
}

impl FrameRegistration {
    /// Registers a section. It ends with a length of 0.
    pub(super) fn new(section: Vec<u8>) -> Self {
        assert!(section.ends_with(&[0; 4]), "the unwinder reads up to a length of 0");
        let section = section.into_boxed_slice();
        // SAFETY: `unwind::Frames` wrote the section in the form that the unwinder reads, up to the end asserted
        // above; the box keeps it at this address, and nothing writes to it, until `drop` has taken it off the list.
        unsafe { __register_frame(section.as_ptr()) };
        Self { section }
    }
}

impl Drop for FrameRegistration {
    fn drop(&mut self) {
        // SAFETY: `new` registered this very address, and nothing else deregisters it.
        unsafe { __deregister_frame(self.section.as_ptr()) };
    }
}
