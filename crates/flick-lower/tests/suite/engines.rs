//! Runs a module on both engines at once and insists that they agree.
