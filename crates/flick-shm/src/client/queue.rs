//! A queue of tokens in which each is at most once.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

/// Tokens in the order in which they were pushed.
#[derive(Debug)]
pub(super) struct TokenQueue {
    tokens: VecDeque<u32>,
    is_in: Box<[bool]>,
}

impl TokenQueue {
    pub fn new(tokens_max: u32) -> Self {
        let is_in = vec![false; tokens_max as usize].into();
        Self { tokens: VecDeque::with_capacity(tokens_max as usize), is_in }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Pushes a token that is not in the queue; one that is stays where it is.
    pub fn push(&mut self, token: u32) {
        if !core::mem::replace(&mut self.is_in[token as usize], true) {
            self.tokens.push_back(token);
        }
    }

    pub fn pop(&mut self) -> Option<u32> {
        let token = self.tokens.pop_front()?;
        self.is_in[token as usize] = false;
        Some(token)
    }
}
