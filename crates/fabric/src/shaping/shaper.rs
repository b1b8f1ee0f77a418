//! The shaper of one direction of a port: two token buckets.

use std::time::Instant;

use taut_api::shaping::Shape;

use super::bucket::Bucket;

/// Limits one direction of a port.
///
/// A new shaper behaves like that of a port that was idle for long: it has its whole burst.
#[derive(Debug, Clone, Default)]
pub struct Shaper(Option<Buckets>);

#[derive(Debug, Clone)]
struct Buckets {
    shape: Shape,
    /// Limits the average rate. Its depth is the burst.
    average: Bucket,
    /// Limits the rate within a burst.
    peak: Bucket,
}

impl Shaper {
    /// Replaces the shape; `None` removes all limits.
    pub fn set(&mut self, shape: Option<Shape>, now: Instant) {
        match (&mut self.0, shape) {
            (_, None) => self.0 = None,
            (Some(buckets), Some(shape)) if buckets.shape == shape => {}
            (Some(buckets), Some(shape)) => {
                buckets.shape = shape;
                buckets.average.change(shape.average, shape.burst.0, now);
                buckets.peak.change(shape.peak(), 0, now);
            }
            (none @ None, Some(shape)) => {
                let average = Bucket::new(shape.average, shape.burst.0, now);
                let peak = Bucket::new(shape.peak(), 0, now);
                *none = Some(Buckets { shape, average, peak });
            }
        }
    }

    /// The earliest time for a frame of `len` bytes; `None` means now.
    #[inline]
    pub fn conforms(&self, now: Instant, len: usize) -> Option<Instant> {
        let buckets = self.0.as_ref()?;
        buckets.average.conforms(now, len).max(buckets.peak.conforms(now, len))
    }

    /// Charges a frame of `len` bytes.
    #[inline]
    pub fn spend(&mut self, now: Instant, len: usize) {
        if let Some(buckets) = &mut self.0 {
            buckets.average.spend(now, len);
            buckets.peak.spend(now, len);
        }
    }
}
