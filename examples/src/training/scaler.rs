//! The scale of the loss.

/// Numbers of 16 bits end at 6e-8, and gradients are often smaller. So the loss, and with it every gradient, is
/// multiplied by a scale, which the step of the weights divides by again. The scale is as large as the gradients allow:
/// it is halved when one becomes infinite, whose step is left out, and doubled after a number of steps without that.
/// PyTorch's `GradScaler` works like this.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scaler {
    scale: f32,
    /// How many steps without an infinite gradient double the scale; `None` for one that stays.
    patience: Option<u32>,
    good_steps: u32,
    skipped: u32,
}

impl Scaler {
    /// Creates a scaler that begins with this scale.
    pub fn new(scale: f32) -> Scaler {
        Scaler { scale, patience: Some(20), good_steps: 0, skipped: 0 }
    }

    /// Creates a scaler that leaves the loss as it is.
    pub fn none() -> Scaler {
        Scaler { patience: None, ..Scaler::new(1.0) }
    }

    /// Returns what the loss is multiplied by now.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the number of steps that were left out.
    pub fn skipped(&self) -> u32 {
        self.skipped
    }

    /// Notes how a step went, and changes the scale for the next one.
    pub fn update(&mut self, overflowed: bool) {
        if overflowed {
            (self.good_steps, self.skipped) = (0, self.skipped + 1);
            if self.patience.is_some() {
                self.scale /= 2.0;
            }
            return;
        }
        self.good_steps += 1;
        if self.patience == Some(self.good_steps) {
            (self.scale, self.good_steps) = (self.scale * 2.0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scaler;

    #[test]
    fn the_scale_follows_the_gradients() {
        let mut scaler = Scaler::new(1024.0);
        scaler.update(true);
        assert_eq!((scaler.scale(), scaler.skipped()), (512.0, 1));
        (0..19).for_each(|_| scaler.update(false));
        assert_eq!(scaler.scale(), 512.0);
        scaler.update(false);
        assert_eq!(scaler.scale(), 1024.0);
        (0..19).for_each(|_| scaler.update(false));
        scaler.update(true);
        assert_eq!((scaler.scale(), scaler.skipped()), (512.0, 2), "an overflow begins the count anew");
    }
}
