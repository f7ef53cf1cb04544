//! Frames: a length of four bytes, then a request or an answer.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The reason that no further frame can be read.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The peer closed the connection; `within` says whether in the middle of a frame.
    Closed { within: bool },
    /// The length is negative or beyond the limit.
    TooLarge { size: u64 },
    /// A system error.
    Io(io::Error),
}

/// Counts the bytes of received frames in memory. A frame is counted as long as any part of it exists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held(Arc<AtomicUsize>);

impl Held {
    /// Returns the bytes of all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a frame until its last part is dropped.
    fn count(&self, frame: Vec<u8>) -> Bytes {
        self.0.fetch_add(frame.len(), Ordering::Relaxed);
        Bytes::from_owner(Counted {
            frame,
            held: self.clone(),
        })
    }
}

/// A counted frame.
struct Counted {
    frame: Vec<u8>,
    held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.frame.len(), Ordering::Relaxed);
    }
}

/// A non-blocking stream.
pub(crate) trait Arriving {
    /// Appends at most `most` arrived bytes to `into`, which has room for them, and returns their number: 0 when the
    /// peer has closed the connection, [`ErrorKind::WouldBlock`] when nothing is available.
    fn arrive(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize>;
}

/// Assembles frames. Each frame has its own memory, so that records are handed out without a copy.
#[derive(Debug)]
pub(crate) struct FrameReader {
    limit: usize,
    held: Held,
    head: Vec<u8>,
    body: Option<(usize, Vec<u8>)>,
}

impl FrameReader {
    pub(crate) const fn new(limit: usize, held: Held) -> Self {
        Self {
            limit,
            held,
            head: Vec::new(),
            body: None,
        }
    }

    /// Returns the bytes of the next frame that have arrived.
    pub(crate) fn partial(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |(_, body)| 4 + body.len())
    }

    /// Returns the next whole frame, or None when more has to arrive.
    pub(crate) fn read(&mut self, source: &mut impl Arriving) -> Result<Option<Bytes>, FrameError> {
        let (size, body) = if let Some(body) = &mut self.body {
            body
        } else {
            if !fill(source, &mut self.head, 4)
                .map_err(|error| closed(error, !self.head.is_empty()))?
            {
                return Ok(None);
            }
            let size = self
                .head
                .iter()
                .fold(0_u32, |size, byte| (size << 8) | u32::from(*byte));
            let size = match usize::try_from(size) {
                Ok(size) if size <= self.limit => size,
                _ => return Err(FrameError::TooLarge { size: size.into() }),
            };
            self.head.clear();
            // the memory is touched as it is filled, so a wrong length costs address space only
            self.body.insert((size, Vec::with_capacity(size)))
        };
        if !fill(source, body, *size).map_err(|error| closed(error, true))? {
            return Ok(None);
        }
        Ok(self.body.take().map(|(_, body)| self.held.count(body)))
    }
}

fn closed(error: io::Error, within: bool) -> FrameError {
    if error.kind() == ErrorKind::UnexpectedEof {
        FrameError::Closed { within }
    } else {
        FrameError::Io(error)
    }
}

/// Reads until `into` holds `size` bytes; false when more has to arrive.
fn fill(source: &mut impl Arriving, into: &mut Vec<u8>, size: usize) -> io::Result<bool> {
    while into.len() < size {
        let missing = size - into.len();
        into.reserve_exact(missing);
        match source.arrive(into, missing) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Bytes to send, in chunks that are never copied together. No `Debug`: credentials pass through it.
#[derive(Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Bytes>,
}

impl Outbox {
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Sends as much as possible without blocking.
    pub(crate) fn flush(&mut self, mut sink: impl io::Write) -> io::Result<()> {
        while !self.chunks.is_empty() {
            let slices: Vec<io::IoSlice<'_>> = self
                .chunks
                .iter()
                .take(64)
                .map(|chunk| io::IoSlice::new(chunk))
                .collect();
            match sink.write_vectored(&slices) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.consume(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // TLS buffers records until they are flushed
        match sink.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn consume(&mut self, mut count: usize) {
        while let Some(first) = self.chunks.front_mut() {
            if count < first.len() {
                bytes::Buf::advance(first, count);
                return;
            }
            count -= first.len();
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Write};

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{Arriving, FrameError, FrameReader, Held, Outbox};

    /// A stream on which bytes arrive in pieces, with nothing to read in between.
    struct Pieces {
        pieces: Vec<Vec<u8>>,
        dry: bool,
    }

    impl Arriving for Pieces {
        fn arrive(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
            assert!(into.capacity() - into.len() >= most);
            if self.dry {
                self.dry = false;
                return Err(ErrorKind::WouldBlock.into());
            }
            let Some(piece) = self.pieces.first_mut() else {
                return Ok(0);
            };
            let count = piece.len().min(most);
            into.extend(piece.drain(..count));
            if piece.is_empty() {
                self.pieces.remove(0);
                self.dry = true;
            }
            Ok(count)
        }
    }

    impl Arriving for &[u8] {
        fn arrive(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
            let (first, rest) = self.split_at(self.len().min(most));
            into.extend_from_slice(first);
            *self = rest;
            Ok(first.len())
        }
    }

    /// A stream that accepts a few bytes at a time.
    struct Narrow {
        sent: Vec<u8>,
        width: usize,
        dry: bool,
    }

    impl Write for &mut Narrow {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.dry = !self.dry;
            if self.dry {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = from.len().min(self.width);
            self.sent.extend_from_slice(&from[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut all = Vec::new();
        for body in bodies {
            all.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            all.extend(body);
        }
        all
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_they_arrive(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            size in 1_usize..50,
        ) {
            let all = framed(&bodies);
            let mut source = Pieces { pieces: all.chunks(size).map(<[u8]>::to_vec).collect(), dry: false };
            let mut reader = FrameReader::new(200, Held::default());
            let mut read = Vec::new();
            loop {
                match reader.read(&mut source) {
                    Ok(Some(frame)) => read.push(frame.to_vec()),
                    Ok(None) => {}
                    Err(FrameError::Closed { within }) => {
                        prop_assert!(!within);
                        break;
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            prop_assert_eq!(read, bodies);
        }

        #[test]
        fn what_is_sent_arrives_in_order(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..100),
            width in 1_usize..80,
        ) {
            let mut outbox = Outbox::default();
            for body in &bodies {
                outbox.push(Bytes::from(body.clone()));
            }
            let mut sink = Narrow { sent: Vec::new(), width, dry: false };
            while !outbox.is_empty() {
                outbox.flush(&mut sink).unwrap();
            }
            prop_assert_eq!(sink.sent, bodies.concat());
        }
    }

    #[test]
    fn a_frame_is_held_as_long_as_any_part_of_it_is() {
        let all = framed(&[vec![1; 100], vec![2; 50]]);
        let mut source = &all[..];
        let held = Held::default();
        let mut reader = FrameReader::new(200, held.clone());
        let mut next = || reader.read(&mut source).unwrap().unwrap();
        let (mut first, second) = (next(), next());
        assert_eq!(held.bytes(), 150);
        drop(second);
        let part = first.split_to(1);
        drop(first);
        assert_eq!(held.bytes(), 100);
        drop(part);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_before_memory_is_taken() {
        for size in [201_u32, u32::MAX] {
            let mut source = &size.to_be_bytes()[..];
            let refused = FrameReader::new(200, Held::default()).read(&mut source);
            assert!(
                matches!(refused, Err(FrameError::TooLarge { size: found }) if found == u64::from(size))
            );
        }
    }

    #[test]
    fn an_end_in_the_middle_of_a_frame_is_told_apart() {
        for (bytes, expected) in [(&[][..], false), (&[0, 0], true), (&[0, 0, 0, 5, 1], true)] {
            let mut source = bytes;
            let ended = FrameReader::new(200, Held::default()).read(&mut source);
            assert!(matches!(ended, Err(FrameError::Closed { within }) if within == expected));
        }
    }
}
