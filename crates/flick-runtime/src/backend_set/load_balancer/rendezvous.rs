//! Highest random weight: of all elements the one whose address and the key together give the highest number.
//! Promises: the same key and list give the same element in every process and release; when an element is added,
//! removed or changes its weight, only keys that it gets or had move; each gets keys by its weight.
//! Refuses: logarithms of the machine's library, which may round otherwise tomorrow.
//! Source: Thaler and Ravishankar, 1998; weights as in Schindelhauer and Schomaker's logarithmic method.

use std::cmp::Reverse;

use flick_abi::hash::hash;

use super::mix;
use crate::config::BackendAddress;

/// The elements of a channel.
#[derive(Debug, Default)]
pub(super) struct RendezvousNames {
    /// By element: hash of its address.
    names: Vec<u64>,
    /// By element, where they are not all the same.
    weights: Vec<f64>,
}

impl RendezvousNames {
    pub(super) fn new(members: &[BackendAddress]) -> Self {
        let names = members.iter().map(|member| hash(member.endpoint.to_string().as_bytes())).collect();
        let is_even = members.windows(2).all(|two| two[0].weight == two[1].weight);
        let weights = members.iter().filter(|_| !is_even).map(|member| f64::from(member.weight)).collect();
        Self { names, weights }
    }

    /// The element of a key. Frozen, as `hash` of the language is.
    pub(super) fn pick(&self, key: &[u8]) -> u64 {
        let key = hash(key);
        let numbers = self.names.iter().map(|name| mix(key ^ name)).enumerate();
        let best = if self.weights.is_empty() {
            numbers.max_by_key(|(element, number)| (*number, Reverse(*element)))
        } else {
            // The least of what lifetimes of atoms would be: `-ln(u) / weight`, for a number `u` between 0 and 1.
            let age = |(element, number): &(usize, u64)| rarity(*number) / self.weights[*element];
            numbers.min_by(|one, other| age(one).total_cmp(&age(other)))
        };
        best.map_or(0, |(element, _)| element as u64)
    }
}

/// `-ln(u)` of the number between 0 and 1 that these bits stand for, by operations that every machine rounds alike.
fn rarity(bits: u64) -> f64 {
    // The upper 52 bits and a half, so that it is neither 0 nor 1.
    let value = ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    let raw = value.to_bits();
    let exponent = ((raw >> 52) & 0x7ff) as f64 - 1_023.0;
    let fraction = f64::from_bits(raw & ((1 << 52) - 1) | 1_023 << 52);
    // ln of the fraction, in 1..2: twice the area tangent of (f - 1) / (f + 1), which is below a third.
    let tangent = (fraction - 1.0) / (fraction + 1.0);
    let square = tangent * tangent;
    let (mut sum, mut power) = (0.0, tangent);
    for odd in 0..TERMS {
        sum += power / f64::from(2 * odd + 1);
        power *= square;
    }
    -(exponent * std::f64::consts::LN_2 + 2.0 * sum)
}

/// Terms of the row; the next one would be less than the last bit.
const TERMS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::rarity;

    #[test]
    fn rarity_is_the_logarithm() {
        for at in 0..1_000_u64 {
            let bits = super::mix(at);
            let exact = -(((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64).ln();
            assert!(
                (rarity(bits) - exact).abs() <= exact * 1e-12 + 1e-14,
                "{bits}: {} {exact}",
                rarity(bits)
            );
        }
        assert!(rarity(u64::MAX) > 0.0 && rarity(0).is_finite());
    }
}
