//! Keys of keyed lists that a grammar and its program look up.
//! Promises: a key has one number; lists with `&nocase` ignore case.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::hir::{FieldId, UnitId};

/// Keys by list, in order of their numbers. Filled while expressions are checked, which borrow the other tables.
#[derive(Default)]
pub(crate) struct Keys(RefCell<BTreeMap<(u32, FieldId), ListKeys>>);

#[derive(Default)]
struct ListKeys {
    nocase: bool,
    keys: Vec<Vec<u8>>,
}

impl Keys {
    /// Enters a keyed list.
    pub(crate) fn declare(&self, unit: UnitId, list: FieldId, nocase: bool) {
        self.0.borrow_mut().entry((unit.0, list)).or_default().nocase = nocase;
    }

    /// Returns the number of a key; `None`: the list has no keys.
    pub(crate) fn index(&self, unit: UnitId, list: FieldId, key: &[u8]) -> Option<u32> {
        let mut lists = self.0.borrow_mut();
        let known = lists.get_mut(&(unit.0, list))?;
        let key = if known.nocase { key.to_ascii_lowercase() } else { key.to_vec() };
        let index = known.keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            known.keys.push(key);
            known.keys.len() - 1
        });
        Some(index as u32)
    }

    /// Whether a list has keys.
    pub(crate) fn is_keyed(&self, unit: UnitId, list: FieldId) -> bool {
        self.0.borrow().contains_key(&(unit.0, list))
    }

    /// All keys of a list.
    pub(crate) fn of(&self, unit: UnitId, list: FieldId) -> Vec<Vec<u8>> {
        self.0.borrow().get(&(unit.0, list)).map_or_else(Vec::new, |known| known.keys.clone())
    }
}
