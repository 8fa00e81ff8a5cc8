//! What a row's process prints, a line for each name, and whether two rows agree.

/// What a row's process printed.
pub struct Printed(pub String);

impl Printed {
    /// Returns what follows a name on its line.
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_default()
    }

    /// Returns the numbers of a line, which commas divide.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.text(name).split(',').filter_map(|number| number.parse().ok()).collect()
    }

    /// Returns the number of a line, or 0.
    pub fn number(&self, name: &str) -> u64 {
        self.numbers(name).first().copied().unwrap_or(0)
    }
}

/// Returns the largest difference of two lists of losses, as a part of their value; infinite if one lacks some.
pub fn difference(losses: &str, others: &str) -> f32 {
    if losses == others {
        return 0.0;
    }
    let read = |text: &str| -> Vec<f32> {
        let digits = |place| u32::from_str_radix(text.get(place..place + 8)?, 16).ok();
        (0..text.len()).step_by(8).filter_map(|place| digits(place).map(f32::from_bits)).collect()
    };
    let (losses, others) = (read(losses), read(others));
    if losses.len() != others.len() {
        return f32::INFINITY;
    }
    let apart = losses.iter().zip(&others).map(|(one, other)| ((one - other) / other).abs());
    apart.fold(f32::MIN_POSITIVE, |worst, apart| if apart.is_nan() { f32::INFINITY } else { worst.max(apart) })
}
