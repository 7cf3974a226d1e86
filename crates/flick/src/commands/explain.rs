//! `flick explain E0301`: the page of an error code.

use clap::Args;

use crate::failure::{Failure, Outcome};

/// Explains an error code.
#[derive(Debug, Args)]
pub struct Explain {
    /// A code such as `E0301`
    code: String,
}

impl Explain {
    /// Prints the page.
    pub fn run(self) -> Outcome {
        let code = self.code.to_uppercase();
        match flick_check::explain(&code) {
            Some(page) => {
                crate::console::sayln!("{}", page.trim_end());
                Ok(())
            }
            None => Err(Failure::usage(format!(
                "there is no error `{}`; codes look like `E0301` and stand in brackets at the front of a message",
                self.code
            ))),
        }
    }
}
