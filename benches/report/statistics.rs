//! Quartiles of what was measured.

use super::results::Quartiles;

/// The value that this share of the sorted values, of which there is one at least, stays below.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// Of one value at least.
pub fn quartiles(mut values: Vec<f64>) -> Quartiles {
    values.sort_by(f64::total_cmp);
    let at = |share| quantile(&values, share);
    Quartiles { lower: at(0.25), median: at(0.5), upper: at(0.75) }
}
