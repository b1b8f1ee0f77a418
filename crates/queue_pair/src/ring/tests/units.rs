//! Single steps of the ends.

use std::mem::MaybeUninit;

use super::super::{End, Ends, Hostile, Look};
use super::{channel, ends, region, stream};
use crate::layout::{Direction, Role, Word};
use crate::memory::Copying;
use crate::ring::{Consumer, Producer};

#[test]
fn bytes_are_there_once_they_are_published() {
    let (mut producer, mut consumer) = ends(&channel(16, 0));
    assert_eq!((producer.size(), producer.room(), consumer.available()), (16, Ok(16), Ok(0)));
    assert_eq!(producer.write(b"0123456789"), Ok(10));
    assert_eq!((producer.room(), producer.used(), consumer.available()), (Ok(6), Ok(10), Ok(0)));
    assert!(producer.publish() && !producer.publish());
    assert_eq!(consumer.available(), Ok(10));
    let mut out = [0; 4];
    assert_eq!((consumer.read(&mut out), &out), (Ok(4), b"0123"));
    assert_eq!((producer.room(), consumer.free()), (Ok(6), Ok(10)));
    assert!(consumer.publish() && !consumer.publish());
    assert_eq!((producer.room(), producer.position(), consumer.position()), (Ok(10), 10, 4));
}

#[test]
fn a_write_stops_at_the_end_of_the_room() {
    let (mut producer, mut consumer) = ends(&channel(16, u32::MAX - 5));
    assert_eq!(producer.write(&stream(0, 40)), Ok(16));
    assert_eq!((producer.write(b"x"), producer.room()), (Ok(0), Ok(0)));
    producer.publish();
    let mut out = [0; 40];
    assert_eq!(consumer.read(&mut out), Ok(16));
    assert_eq!(out[..16], stream(0, 16));
    assert_eq!(consumer.read(&mut out), Ok(0));
}

#[test]
fn bytes_that_are_peeked_stay() {
    let (mut producer, mut consumer) = ends(&channel(8, 6));
    producer.write(b"abcdefgh").unwrap();
    producer.publish();
    let mut out = [0; 3];
    assert_eq!((consumer.peek(0, &mut out), &out), (Ok(3), b"abc"));
    assert_eq!((consumer.peek(6, &mut out), &out), (Ok(2), b"ghc"));
    assert_eq!((consumer.peek(8, &mut out), consumer.peek(usize::MAX, &mut out)), (Ok(0), Ok(0)));
    consumer.skip(7);
    let mut out = [MaybeUninit::new(0); 3];
    assert_eq!(consumer.read_uninit(&mut out), Ok(1));
    consumer.publish();
    assert_eq!(producer.room(), Ok(8));
}

#[test]
fn bytes_that_were_not_taken_are_copied_back() {
    let (mut producer, mut consumer) = ends(&channel(8, u32::MAX - 2));
    producer.write(b"abcdefgh").unwrap();
    producer.publish();
    assert_eq!(consumer.read(&mut [0; 3]), Ok(3));
    // What the consumer has not published counts as not taken.
    assert_eq!(producer.used(), Ok(8));
    consumer.publish();
    let left = producer.used().unwrap();
    let mut out = [0; 4];
    producer.copy_back(left, &mut out);
    assert_eq!((left, &out), (5, b"defg"));
    producer.copy_back(1, &mut out[..1]);
    assert_eq!(out[0], b'h');
    producer.copy_back(0, &mut []);
}

#[test]
#[should_panic(expected = "more bytes than were written")]
fn no_more_is_copied_back_than_the_ring_has() {
    let (producer, _consumer) = ends(&channel(8, 0));
    producer.copy_back(9, &mut [0; 9]);
}

#[test]
#[should_panic(expected = "more bytes than there were")]
fn more_than_the_ring_is_never_counted_as_read() {
    let (_producer, mut consumer) = ends(&channel(8, 0));
    consumer.skip(9);
}

#[test]
fn impossible_positions_are_errors_with_their_values() {
    let channel = channel(64, 100);
    let (mut producer, mut consumer) = ends(&channel);
    let positions = |head, tail| Err(Hostile::Positions { direction: Direction::Out, head, tail, size: 64 });
    producer.write(&[1; 10]).unwrap();
    producer.publish();
    producer.write(&[2; 10]).unwrap();
    // Behind the ring, and beyond what was published.
    for tail in [100 - 55, 111, 120, 0, u32::MAX] {
        channel.store(Word::OutTail, tail);
        assert!(producer.room().is_err(), "{tail}");
        assert_eq!(producer.write(&[3]), producer.room().map(|_| 0));
    }
    channel.store(Word::OutTail, 120);
    assert_eq!(producer.room(), positions(110, 120));
    channel.store(Word::OutTail, 100 - 54);
    assert_eq!(producer.room(), positions(120, 46), "with what is not published");

    let mut out = [0; 5];
    consumer.read(&mut out).unwrap();
    for head in [104, 165, 99, 0, u32::MAX] {
        channel.store(Word::OutHead, head);
        assert!(consumer.available().is_err(), "{head}");
        assert!(consumer.read(&mut out).is_err() && consumer.peek(0, &mut out).is_err());
        assert!(consumer.look().is_err() && consumer.free().is_err());
    }
    channel.store(Word::OutHead, 165);
    assert_eq!(consumer.available(), positions(165, 100));
    let text = consumer.available().unwrap_err().to_string();
    assert_eq!(
        text,
        "positions 165 (written) and 100 (taken) of the ring from the guest are not possible in a ring \
         of 64 bytes"
    );
    channel.store(Word::OutHead, 164);
    assert_eq!(consumer.available(), Ok(59));
}

#[test]
fn nothing_is_moved_between_rings_after_a_violation() {
    let region = region(2, 64);
    let [from, to] = [0, 1].map(|index| region.channel(index).unwrap());
    let (mut source, mut taken) = ends(&from);
    let (mut target, _read) = ends(&to);
    source.write(&[7; 20]).unwrap();
    source.publish();
    from.store(Word::OutHead, 65);
    assert!(target.write_from(&mut taken, 10).is_err());
    from.store(Word::OutHead, 20);
    to.store(Word::OutTail, 1);
    assert!(target.write_from(&mut taken, 10).is_err());
    assert_eq!((target.position(), taken.position()), (0, 0));
    to.store(Word::OutTail, 0);
    assert_eq!(target.write_from(&mut taken, 10), Ok(10));
    assert_eq!((target.position(), taken.position()), (10, 10));
}

#[test]
fn the_end_comes_after_the_last_byte() {
    for end in [End::Finished, End::Reset] {
        let channel = channel(16, 9);
        let ends = |role| Ends::resume(&channel, role, Copying::Words).unwrap();
        let (mut fabric, mut guest) = (ends(Role::Fabric), ends(Role::Guest));
        fabric.producer.write(b"last").unwrap();
        assert_eq!(guest.consumer.look(), Ok(Look { bytes: 0, end: End::Open }));
        guest.consumer.wait();
        fabric.producer.finish(end);
        assert!(fabric.producer.must_signal());
        assert_eq!(guest.consumer.look(), Ok(Look { bytes: 4, end }));
        guest.consumer.read(&mut [0; 9]).unwrap();
        assert_eq!(guest.consumer.look(), Ok(Look { bytes: 0, end }));
    }
}

#[test]
fn an_end_word_without_meaning_is_an_error() {
    let channel = channel(16, 0);
    let [out, back] = [Direction::Out, Direction::In]
        .map(|direction| Consumer::resume(channel.clone(), direction, Copying::Library).unwrap());
    channel.store(Word::OutEnd, 2);
    let error = out.look().unwrap_err();
    assert_eq!(error, Hostile::End { direction: Direction::Out, value: 2 });
    assert_eq!(error.to_string(), "the end word of the ring from the guest is 2, which has no meaning");
    channel.store(Word::InEnd, 2);
    assert_eq!(back.look().map(|look| look.end), Ok(End::Reset));
    for value in [3, u32::MAX] {
        channel.store(Word::InEnd, value);
        assert_eq!(back.look(), Err(Hostile::End { direction: Direction::In, value }));
        assert_eq!(back.available(), Ok(0), "bytes can still be read");
    }
}

#[test]
fn an_announcement_gets_one_signal() {
    let channel = channel(16, 0);
    let (mut producer, mut consumer) = ends(&channel);
    assert!(!producer.must_signal() && !consumer.must_signal());
    consumer.wait();
    assert!(consumer.is_waiting() && !producer.is_waiting());
    assert_eq!(channel.load(Word::OutBytesWait), 1);
    assert!(producer.must_signal() && !producer.must_signal());
    consumer.wait();
    assert_eq!(channel.load(Word::OutBytesWait), 3);
    assert!(producer.is_awaited() && !consumer.is_awaited());
    assert!(producer.must_signal() && !producer.must_signal() && !producer.is_awaited());
    consumer.stop_waiting();
    consumer.stop_waiting();
    assert_eq!(channel.load(Word::OutBytesWait), 4);
    assert!(!producer.must_signal());
    producer.wait();
    assert_eq!(channel.load(Word::OutRoomWait), 1);
    assert!(consumer.must_signal() && !consumer.must_signal() && !producer.must_signal());
    producer.stop_waiting();
    assert!(!consumer.must_signal() && !producer.is_waiting());
}

#[test]
fn the_number_of_a_wait_wraps_around() {
    let channel = channel(16, 0);
    channel.store(Word::OutBytesWait, u32::MAX);
    let (mut producer, mut consumer) = ends(&channel);
    assert!(consumer.is_waiting());
    assert!(producer.must_signal());
    consumer.wait();
    assert_eq!(channel.load(Word::OutBytesWait), 1);
    assert!(producer.must_signal());
    channel.store(Word::OutBytesWait, u32::MAX - 1);
    let mut consumer = Consumer::resume(channel.clone(), Direction::Out, Copying::Library).unwrap();
    consumer.wait();
    consumer.stop_waiting();
    assert_eq!(channel.load(Word::OutBytesWait), 0);
}

#[test]
fn another_process_continues_at_the_words() {
    let channel = channel(16, u32::MAX - 3);
    let (mut producer, mut consumer) = ends(&channel);
    producer.write(b"abcdefgh").unwrap();
    producer.publish();
    producer.write(b"lost").unwrap();
    consumer.read(&mut [0; 3]).unwrap();
    consumer.publish();
    consumer.read(&mut [0; 2]).unwrap();
    consumer.wait();
    let (mut producer, mut consumer) = ends(&channel);
    assert_eq!((producer.position(), producer.room()), (4, Ok(11)));
    assert!(consumer.is_waiting() && producer.must_signal());
    producer.write(b"ij").unwrap();
    producer.publish();
    let mut out = [0; 16];
    assert_eq!((consumer.read(&mut out), &out[..7]), (Ok(7), &b"defghij"[..]));
}

#[test]
fn words_that_are_impossible_are_not_taken_over() {
    let channel = channel(16, 0);
    channel.store(Word::OutHead, 17);
    assert!(Producer::resume(channel.clone(), Direction::Out, Copying::Library).is_err());
    assert!(Consumer::resume(channel.clone(), Direction::Out, Copying::Library).is_err());
    assert!(Ends::resume(&channel, Role::Guest, Copying::Library).is_err());
    assert!(Ends::resume(&channel, Role::Fabric, Copying::Library).is_err());
    channel.store(Word::OutHead, 16);
    channel.store(Word::OutEnd, 9);
    assert!(Consumer::resume(channel.clone(), Direction::Out, Copying::Library).is_err());
    // A channel that is new begins with zeros, whatever the words say.
    let guest = Ends::new(&channel, Role::Guest, Copying::Library);
    assert_eq!((guest.producer.position(), guest.consumer.position()), (0, 0));
    assert!(!guest.producer.is_waiting() && guest.producer.direction() == Direction::Out);
    assert_eq!((guest.consumer.direction(), guest.consumer.channel().index()), (Direction::In, 0));
    assert_eq!((guest.producer.channel().ring_len(), guest.consumer.size()), (16, 16));
}

#[test]
fn own_words_that_another_program_has_overwritten_are_an_error() {
    let channel = channel(16, 0);
    let (mut producer, mut consumer) = ends(&channel);
    producer.write(b"abcdef").unwrap();
    producer.publish();
    consumer.read(&mut [0; 2]).unwrap();
    consumer.publish();
    // Bytes that are not published are in no word.
    producer.write(b"g").unwrap();
    consumer.read(&mut [0; 1]).unwrap();
    consumer.wait();
    producer.wait();
    producer.finish(End::Finished);
    let check = |word: Word| match word {
        Word::OutHead | Word::OutRoomWait | Word::OutEnd => producer.check_own_words(End::Finished),
        _ => consumer.check_own_words(),
    };
    let words = [
        (Word::OutHead, 7),
        (Word::OutRoomWait, 1),
        (Word::OutEnd, 1),
        (Word::OutTail, 2),
        (Word::OutBytesWait, 1),
    ];
    for (word, written) in words {
        for found in [0, 4, u32::MAX] {
            channel.store(word, found);
            assert_eq!(check(word), Err(Hostile::Overwritten { word, written, found }));
            let is_wait = [Word::OutRoomWait, Word::OutBytesWait].contains(&word);
            let positions = consumer.check_position().and(producer.check_position(End::Finished));
            assert_eq!(positions.is_ok(), is_wait, "{word}");
            channel.store(word, written);
            assert_eq!(check(word), Ok(()));
        }
    }
    assert_eq!(producer.check_own_words(End::Open).map_err(Hostile::direction), Err(Direction::Out));
    channel.store(Word::OutTail, 5);
    assert_eq!(
        consumer.check_own_words().unwrap_err().to_string(),
        "the word OutTail is 5 instead of 2: a program of the guest has overwritten it"
    );
}
