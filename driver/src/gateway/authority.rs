//! Turns the bytes of an HTTP/2 connection into ones whose `:authority` the server accepts, and all others into themselves.
//! It refuses to know what is called.
//!
//! gRPC's own library names a Unix socket by its escaped path, which is no authority to the HTTP/2 server here; it would
//! end the stream. Nothing here reads the name, so each is overwritten in place by one of the same encoded length. That
//! keeps frames, and the table both sides share, as they were.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// What a client sends before its first frame.
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The static table's `:authority`.
const AUTHORITY: usize = 1;
/// `X`: one byte in the text, and eight bits in the Huffman code.
const PLAIN_X: u8 = b'X';
const HUFFMAN_X: u8 = 0xFC;
/// A frame of headers over this length passes as it is; no client of ours sends one.
const LONGEST: usize = 1 << 16;

/// The sans-io half: takes bytes in, gives bytes out.
#[derive(Debug)]
struct Rewriter {
    pending: Vec<u8>,
    /// Bytes that pass before the next frame starts.
    pass: usize,
}

impl Rewriter {
    fn new() -> Self {
        Self { pending: Vec::new(), pass: PREFACE }
    }

    /// Takes some bytes, and appends to `out` what is ready.
    fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.pending.extend_from_slice(input);
        loop {
            if self.pass > 0 {
                let now = self.pass.min(self.pending.len());
                out.extend(self.pending.drain(..now));
                self.pass -= now;
            }
            let Some(&[a, b, c, kind, flags]) = self.pending.first_chunk::<5>() else { return };
            if self.pass > 0 || self.pending.len() < FRAME_HEAD {
                return;
            }
            let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if kind == HEADERS && len <= LONGEST {
                if self.pending.len() < FRAME_HEAD + len {
                    return;
                }
                if let Some(payload) = self.pending.get_mut(FRAME_HEAD..FRAME_HEAD + len) {
                    // A block that cannot be read is left to the server to refuse.
                    let _ = rewrite(payload, flags);
                }
            }
            self.pass = FRAME_HEAD + len;
        }
    }

    /// What is left when the input ends.
    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.pending);
    }
}

/// Overwrites every authority in a frame of headers.
fn rewrite(payload: &mut [u8], flags: u8) -> Option<()> {
    let padding = if flags & PADDED != 0 { usize::from(*payload.first()?) } else { 0 };
    let mut at = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let end = payload.len().checked_sub(padding)?;
    let block = payload.get_mut(..end)?;
    while at < block.len() {
        let first = *block.get(at)?;
        let (prefix, literal) = match first {
            0x80.. => (7, false),
            0x40..0x80 => (6, true),
            0x20..0x40 => (5, false),
            _ => (4, true),
        };
        let index = integer(block, &mut at, prefix)?;
        if !literal {
            continue;
        }
        // gRPC's own library spells the name out, uncoded.
        let spelled = match index {
            0 => string(block, &mut at).map(|(_, range)| block.get(range) == Some(b":authority"))?,
            _ => false,
        };
        let (huffman, range) = string(block, &mut at)?;
        if spelled || index == AUTHORITY {
            block.get_mut(range)?.fill(if huffman { HUFFMAN_X } else { PLAIN_X });
        }
    }
    Some(())
}

/// An integer whose first byte keeps `prefix` bits of it (RFC 7541, 5.1).
fn integer(block: &[u8], at: &mut usize, prefix: u32) -> Option<usize> {
    let mask = (1_usize << prefix) - 1;
    let mut value = usize::from(*block.get(*at)?) & mask;
    *at += 1;
    if value < mask {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Whether a string is Huffman-coded, and where it stands (RFC 7541, 5.2).
fn string(block: &[u8], at: &mut usize) -> Option<(bool, std::ops::Range<usize>)> {
    let huffman = block.get(*at)? & 0x80 != 0;
    let len = integer(block, at, 7)?;
    let range = *at..at.checked_add(len)?;
    block.get(range.clone())?;
    *at = range.end;
    Some((huffman, range))
}

/// A connection whose reading side goes through the rewriter.
#[derive(Debug)]
pub(crate) struct Tamed<S> {
    inner: S,
    rewriter: Rewriter,
    ready: Vec<u8>,
    ended: bool,
}

impl<S> Tamed<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, rewriter: Rewriter::new(), ready: Vec::new(), ended: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tamed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.ready.is_empty() && !this.ended {
            let mut raw = [0; 8192];
            let mut read = ReadBuf::new(&mut raw);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                this.ended = true;
                this.rewriter.finish(&mut this.ready);
            } else {
                this.rewriter.feed(read.filled(), &mut this.ready);
            }
        }
        let now = this.ready.len().min(to.remaining());
        to.put_slice(this.ready.get(..now).unwrap_or_default());
        this.ready.drain(..now);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tamed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl<S: Connected> Connected for Tamed<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Feeds in pieces of every size; what comes out must not depend on it.
    fn through(input: &[u8]) -> Vec<u8> {
        let whole = |size: usize| {
            let (mut rewriter, mut out) = (Rewriter::new(), Vec::new());
            input.chunks(size).for_each(|piece| rewriter.feed(piece, &mut out));
            rewriter.finish(&mut out);
            out
        };
        let expected = whole(input.len());
        (1..40).for_each(|size| assert_eq!(whole(size), expected, "in pieces of {size}"));
        expected
    }

    fn preface() -> Vec<u8> {
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()
    }

    #[test]
    fn an_authority_is_overwritten_in_place_and_nothing_else() {
        // :method POST; a size update; a literal field; the authority, plain; one more field.
        let block = |authority: &[u8]| {
            let spelled = [b"\x40\x0a:authority\x05", authority].concat();
            [b"\x83\x3f\x01\x40\x01a\x01b\x41\x05", authority, &spelled, b"\x84"].concat()
        };
        let input =
            [preface(), frame(4, 0, &[]), frame(1, 4, &block(b"%2Fab")), frame(0, 1, b"\x41\x05%2Fab")]
                .concat();
        let expected =
            [preface(), frame(4, 0, &[]), frame(1, 4, &block(b"XXXXX")), frame(0, 1, b"\x41\x05%2Fab")]
                .concat();
        assert_eq!(through(&input), expected);
    }

    #[test]
    fn a_coded_authority_behind_padding_and_priority_is_found() {
        let payload = |value: [u8; 2]| {
            [&[3, 0, 0, 0, 0, 9, 0x01, 0x82], value.as_slice(), &[0x41, 0x01, b'z']].concat()
        };
        let input = [preface(), frame(1, 0x2c, &payload([0x55, 0x66]))].concat();
        assert_eq!(through(&input), [preface(), frame(1, 0x2c, &payload([0xfc, 0xfc]))].concat());
    }

    #[test]
    fn a_block_that_cannot_be_read_passes_as_it_is() {
        for block in [&b"\x41\x7f\xff\xff\xff\xff"[..], b"\x41\x20short", b"\x40", b"\xff\xff\xff\xff\xff"] {
            let input = [preface(), frame(1, 4, block), vec![0, 0]].concat();
            assert_eq!(through(&input), input);
        }
        assert_eq!(through(b"GET / HTTP/1.1\r\n\r\n"), b"GET / HTTP/1.1\r\n\r\n");
    }
}
