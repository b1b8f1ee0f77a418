//! The two buckets of a port and direction.

use std::time::Instant;

use taut_api::shaping::Shape;

use super::bucket::Bucket;

/// Limits one direction of a port. It starts as a port that was idle for long: with all of its burst. That holds after
/// a restart of the fabric, too; what has been sent is no part of a session.
#[derive(Debug, Clone, Default)]
pub struct Shaper(Option<Buckets>);

#[derive(Debug, Clone)]
struct Buckets {
    shape: Shape,
    /// The burst bonus is what the average leaves unused.
    average: Bucket,
    /// How fast the bonus is spent.
    peak: Bucket,
}

impl Shaper {
    /// Puts another shape in force, or none.
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

    /// When a frame of `len` bytes may be sent: now (`None`), or at the earliest then.
    #[inline]
    pub fn conforms(&self, now: Instant, len: usize) -> Option<Instant> {
        let buckets = self.0.as_ref()?;
        buckets.average.conforms(now, len).max(buckets.peak.conforms(now, len))
    }

    /// A frame of `len` bytes is sent.
    #[inline]
    pub fn spend(&mut self, now: Instant, len: usize) {
        if let Some(buckets) = &mut self.0 {
            buckets.average.spend(now, len);
            buckets.peak.spend(now, len);
        }
    }
}
