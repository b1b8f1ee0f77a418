//! Moves from one ring to another, as the fabric does.

use proptest::prelude::*;

use super::{channel, ends, stream};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_stream_through_two_rings_is_exact(
        lens in (0_u32..10, 0_u32..10),
        starts in any::<(u32, u32)>(),
        steps in proptest::collection::vec((0_u8..3, 0_usize..700), 300),
    ) {
        let (mut source, mut taken) = ends(&channel(1 << lens.0, starts.0));
        let (mut target, mut received) = ends(&channel(1 << lens.1, starts.1));
        let (mut sent, mut got) = (0, 0);
        for (step, count) in steps {
            match step {
                0 => {
                    sent += source.write(&stream(sent, count)).unwrap() as u64;
                    source.publish();
                }
                1 => {
                    let possible = target.room().unwrap().min(taken.available().unwrap()) as usize;
                    prop_assert_eq!(target.write_from(&mut taken, count), Ok(count.min(possible)));
                    prop_assert!(!target.publish() || count > 0);
                    taken.publish();
                }
                _ => {
                    let mut out = vec![0; count];
                    let count = received.read(&mut out).unwrap();
                    prop_assert_eq!(&out[..count], &stream(got, count));
                    got += count as u64;
                    received.publish();
                }
            }
        }
        let on_the_way = taken.available().unwrap() + received.available().unwrap();
        prop_assert_eq!(got + u64::from(on_the_way), sent);
    }
}
