//! A set of measurements by its quartiles.

/// The median of several measurements, and how far they lie apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The number of measurements.
    pub count: usize,
    /// The smallest measurement.
    pub min: f64,
    /// The lower quartile.
    pub lower: f64,
    /// The median.
    pub median: f64,
    /// The upper quartile.
    pub upper: f64,
}

impl Spread {
    /// Returns the quartiles of some measurements, interpolated between neighbours.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "no measurement has no median");
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Self { count: values.len(), min: values[0], lower: at(0.25), median: at(0.5), upper: at(0.75) }
    }

    /// Returns the noise: the width of the middle half as a share of the median, in percent.
    pub fn noise_percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { 100.0 * (self.upper - self.lower) / self.median }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread, Spread { count: 4, min: 1.0, lower: 1.75, median: 2.5, upper: 3.25 });
        assert_eq!(spread.noise_percent(), 60.0);
        assert_eq!(Spread::of(vec![7.0]), Spread { count: 1, min: 7.0, lower: 7.0, median: 7.0, upper: 7.0 });
    }
}
