//! Turns committed seeds into many malformed inputs for every parser that meets bytes of a sandbox or of a server, and checks
//! what must hold for each. It refuses to run with the other tests: `cargo test -p broker --test fuzz -- [SECONDS]`.
//!
//! An input that breaks something is printed as bytes; put it into `seeds/` with the fix.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test's report")]
#![expect(clippy::disallowed_methods, reason = "it runs for as long as it is told")]

use std::path::Path;
use std::time::{Duration, Instant};

use broker::core::body::Body;
use broker::core::dns;
use broker::core::fields::Framing;
use broker::core::head::{self, Form};
use broker::core::{hello, response};
use policy::endpoint::Endpoint;

/// Inputs between two looks at the clock.
const ROUND: u32 = 2_000;
/// The longest input.
const LONGEST: usize = 8 * 1024;

/// A parser by the name of its seeds, with what must hold.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 6] = [
    ("head", |bytes| {
        let Ok(Some((head, length))) = head::read(bytes, LONGEST) else { return };
        assert!(length <= bytes.len() && head.framing != Framing::Close);
        if let Form::Absolute { target, path, .. } = &head.form {
            let mut out = Vec::new();
            head.write(target, *path, true, &mut out);
            let (again, whole) = head::read(&out, LONGEST * 2).unwrap().unwrap();
            assert_eq!((again.framing, whole), (head.framing, out.len()), "passed on with the same length");
            assert!(again.host_is(target, false).is_ok(), "passed on to the same host");
        }
    }),
    ("response", |bytes| {
        let Ok(Some((head, length))) = response::read(bytes, "GET", LONGEST) else { return };
        assert!(length <= bytes.len());
        let mut out = Vec::new();
        head.write(true, &mut out);
        let (again, _) = response::read(&out, "GET", LONGEST * 2).unwrap().unwrap();
        assert_eq!((again.framing, again.status), (head.framing, head.status));
    }),
    ("body", |bytes| {
        let mut whole = Body::new(Framing::Chunked);
        let taken = whole.take(bytes);
        let mut parts = Body::new(Framing::Chunked);
        let mut count = 0;
        for part in bytes.chunks(3) {
            match parts.take(part) {
                Ok(taken) => count += taken,
                Err(malformed) => return assert_eq!(taken, Err(malformed)),
            }
            if parts.is_done() {
                break;
            }
        }
        assert_eq!(taken, Ok(count), "where the bytes are cut does not matter");
    }),
    ("hello", |bytes| {
        if let Ok(Some(found)) = hello::read(bytes) {
            let more = [bytes, b"more".as_slice()].concat();
            assert_eq!(hello::read(&more), Ok(Some(found)), "what follows changes nothing");
        }
    }),
    ("dns", |bytes| {
        let Some(Ok(question)) = dns::read(bytes) else { return };
        let known = question.answer(dns::Answer::Known([198, 18, 0, 1].into()));
        assert!(known.len() <= bytes.len() + 16 && known.starts_with(bytes.get(..2).unwrap_or_default()));
    }),
    ("endpoint", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match Endpoint::parse(&text) {
            Ok(endpoint) => assert_eq!(Endpoint::parse(&endpoint.to_string()), Ok(endpoint)),
            Err(error) => assert!(text.get(error.span).is_some()),
        }
    }),
];

/// Numbers that look random and are the same for the same start.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        const ODD: [u8; 16] = *b"\r\n\0 :,;.*[]@%#\x7f\xff";
        let any = u8::try_from(self.below(256)).unwrap_or(0);
        if self.below(2) == 0 { any } else { ODD.get(self.below(ODD.len())).copied().unwrap_or(any) }
    }

    /// Changes an input in a few places: bytes set, taken out, put in, repeated, cut, or joined with another seed.
    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(16)).min(bytes.len());
            match self.below(7) {
                0 => bytes.insert(at, self.byte()),
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                2 => drop(bytes.drain(at.min(end)..end)),
                3 => bytes.extend_from_within(at.min(end)..end),
                4 => bytes.truncate(at),
                5 => {
                    let other = seeds.get(self.below(seeds.len())).cloned().unwrap_or_default();
                    let from = self.below(other.len());
                    bytes.truncate(at);
                    bytes.extend_from_slice(other.get(from..).unwrap_or_default());
                }
                _ => {
                    let byte = self.byte();
                    bytes.iter_mut().skip(at).take(1).for_each(|place| *place = byte);
                }
            }
        }
        bytes.truncate(LONGEST);
    }
}

fn main() {
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(10);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut count = 0_u64;
    let seeds: Vec<_> = TARGETS.iter().map(|(name, _)| seeds(name)).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        for ((name, check), seeds) in TARGETS.iter().zip(&seeds) {
            for _ in 0..ROUND {
                let mut bytes = seeds.get(numbers.below(seeds.len())).cloned().unwrap_or_default();
                numbers.change(&mut bytes, seeds);
                guarded(name, *check, &bytes);
                count += 1;
            }
        }
    }
    println!("{count} inputs to {} parsers", TARGETS.len());
}

/// Every seed of a parser; each must hold as it is.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds").join(name);
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let seeds: Vec<Vec<u8>> = files.map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let check = TARGETS.iter().find(|(known, _)| *known == name).unwrap().1;
    seeds.iter().for_each(|seed| guarded(name, check, seed));
    seeds
}

fn guarded(name: &str, check: fn(&[u8]), bytes: &[u8]) {
    if std::panic::catch_unwind(|| check(bytes)).is_err() {
        println!("{name}: \"{}\"", bytes.escape_ascii());
        std::process::exit(1);
    }
}
