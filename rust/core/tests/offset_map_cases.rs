//! Cases of the offset map in text files: `datadriven/offset_map/*.txt`.
//!
//! A case is a command with its input, `----`, and what must come out, up to an empty line; `#` begins a comment.
//!
//! ```text
//! map            input: FIRST+COUNT -> FIRST, a range per line, source and target
//! transaction    input: `fetched` and offsets in fetch order (`3`, `5-9`; `d` behind it: dropped on purpose),
//!                `acked` and offsets of the target
//! encode         the chunk of the map, to topic `t`, partition 3
//! decode         input: a chunk in hexadecimal
//! to-target      input: source offsets
//! to-source      input: target offsets
//! ```
//!
//! `map`, `transaction` and `decode` leave a map behind, which the others of the file use; a refused one leaves
//! none. `EOMIRROR_REWRITE=1` writes what comes out into the files; read the difference before it is committed.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use eomirror_core::client_plane::plan::plan;
use eomirror_core::client_plane::route::Routes;
use eomirror_core::header::{self, Provenance};
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::offset_map::{OffsetMap, Range, Translation, decode};
use eomirror_core::types::{AckRun, AckedPartition};
use eomirror_core::{Acks, Error, HeaderRef, Ledger, Policy, RecordRef, Written};

const PARTITION: i32 = 3;

#[test]
fn every_case_comes_out_as_it_is_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/datadriven/offset_map");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no case was found");
    for file in files {
        run_file(&file);
    }
}

fn run_file(file: &Path) {
    let written = fs::read_to_string(file).unwrap();
    let found = run_text(&written);
    if env::var_os("EOMIRROR_REWRITE").is_some() {
        fs::write(file, found).unwrap();
        return;
    }
    for (number, (before, after)) in written.lines().zip(found.lines()).enumerate() {
        assert_eq!(before, after, "{}:{}", file.display(), number + 1);
    }
    assert_eq!(
        written,
        found,
        "{}: more or fewer lines come out",
        file.display()
    );
}

/// Returns the file as it should be: its cases, each followed by its result.
fn run_text(text: &str) -> String {
    let mut out = String::new();
    let mut map = OffsetMap::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        let command = line.split('#').next().unwrap_or_default().trim();
        if command.is_empty() {
            continue;
        }
        let mut input = Vec::new();
        loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("{command:?} has no ----"));
            writeln!(out, "{line}").unwrap();
            if line == "----" {
                break;
            }
            input.push(line.split('#').next().unwrap_or_default().trim());
        }
        out.push_str(&run_case(command, &input, &mut map));
        out.push('\n');
        // the previous result
        for line in lines.by_ref() {
            if line.is_empty() {
                break;
            }
        }
    }
    // a file ends with one line feed
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn run_case(command: &str, input: &[&str], map: &mut OffsetMap) -> String {
    let built = match command {
        "map" => read_ranges(input),
        "transaction" => settle(input),
        "decode" => decode(&from_hex(&input.concat())).map(|chunk| {
            let shown = format!("topic {} partition {}\n", chunk.topic, chunk.partition);
            (shown, chunk.map)
        }),
        "encode" => {
            return map.encode("t", PARTITION).map_or_else(refusal, |bytes| {
                format!("{}\n{} bytes\n", hex(&bytes), bytes.len())
            });
        }
        "to-target" => return translate(input, |offset| map.to_target(offset)),
        "to-source" => return translate(input, |offset| map.to_source(offset)),
        other => panic!("{other:?} is not a command"),
    };
    *map = OffsetMap::default();
    match built {
        Ok((shown, made)) => {
            *map = made;
            shown + &show(map)
        }
        Err(error) => refusal(error),
    }
}

// the shape that `map_or_else` wants
#[allow(clippy::needless_pass_by_value)]
fn refusal(error: Error) -> String {
    format!("error: {error}\n")
}

fn show(map: &OffsetMap) -> String {
    let mut out = String::new();
    for range in map.ranges() {
        writeln!(out, "{}+{} -> {}", range.source, range.count, range.target).unwrap();
    }
    match map.target_bounds() {
        Some((first, last)) => writeln!(out, "target {first}-{last}").unwrap(),
        None => out.push_str("empty\n"),
    }
    out
}

fn translate(input: &[&str], of: impl Fn(i64) -> Translation) -> String {
    let mut out = String::new();
    for (first, last, _) in input.iter().flat_map(|line| spans(line)) {
        for offset in first..=last {
            let said = match of(offset) {
                Translation::Exact(at) => format!("exact {at}"),
                Translation::Next(at) => format!("next {at}"),
                Translation::Unknown => "unknown".to_owned(),
            };
            writeln!(out, "{offset} -> {said}").unwrap();
        }
    }
    out
}

fn read_ranges(input: &[&str]) -> Result<(String, OffsetMap), Error> {
    let ranges: Vec<Range> = input
        .iter()
        .map(|line| {
            let (from, target) = line.split_once(" -> ").expect("FIRST+COUNT -> FIRST");
            let (source, count) = from.split_once('+').expect("FIRST+COUNT -> FIRST");
            Range {
                source: number(source),
                target: number(target),
                count: number(count),
            }
        })
        .collect();
    OffsetMap::from_ranges(&ranges).map(|map| (String::new(), map))
}

/// Plans the fetched records, settles them with the acknowledgements, and decodes the resulting chunk.
fn settle(input: &[&str]) -> Result<(String, OffsetMap), Error> {
    let routes = Routes::new([("s".to_owned(), "t".to_owned())])?;
    let policy = Policy::new(routes, LoopGuard::new("S", "T", None, true)?, false);
    let been_there = Provenance {
        origin: "T".to_owned(),
        hops: vec!["T".to_owned()],
    };
    let dropped_header = been_there.encode("s", None, Some(b"v"), None);
    let dropped_headers = [HeaderRef {
        key: header::NAME.as_bytes(),
        value: Some(&dropped_header),
    }];
    let mut ledger = Ledger::default();
    let mut runs = Vec::new();
    for line in input {
        let (what, offsets) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "fetched" => {
                let records: Vec<RecordRef<'_>> = spans(offsets)
                    .flat_map(|(first, last, drop)| (first..=last).map(move |at| (at, drop)))
                    .map(|(offset, drop)| RecordRef {
                        topic: "s",
                        partition: PARTITION,
                        offset,
                        leader_epoch: 0,
                        timestamp: 1,
                        key: None,
                        value: Some(b"v"),
                        headers: if drop { &dropped_headers } else { &[] },
                        written: Written::Unknown,
                    })
                    .collect();
                plan(&policy, &records, &mut ledger)?;
            }
            "acked" => runs.extend(spans(offsets).map(|(first, last, _)| AckRun {
                first,
                count: last - first + 1,
            })),
            other => panic!("{other:?} is neither fetched nor acked"),
        }
    }
    let acked = AckedPartition {
        topic: "t".to_owned(),
        partition: PARTITION,
        runs,
    };
    let acks = Acks {
        failed: 0,
        partitions: if acked.runs.is_empty() {
            vec![]
        } else {
            vec![acked]
        },
    };
    let accounts = ledger.settle(policy.routes(), &acks)?;
    let Some(account) = accounts.first() else {
        return Ok(("no account\n".to_owned(), OffsetMap::default()));
    };
    let shown = format!(
        "fetched {} acked {} dropped {:?}\n",
        account.fetched, account.acked, account.dropped
    );
    if account.offset_map.is_empty() {
        return Ok((shown, OffsetMap::default()));
    }
    decode(&account.offset_map).map(|chunk| (shown, chunk.map))
}

/// `3`, `5-9`, `7d`: first, last, and whether it is marked.
fn spans(text: &str) -> impl Iterator<Item = (i64, i64, bool)> {
    text.split_whitespace().map(|word| {
        let (offsets, marked) = word
            .strip_suffix('d')
            .map_or((word, false), |it| (it, true));
        let (first, last) = offsets.split_once('-').unwrap_or((offsets, offsets));
        (number(first), number(last), marked)
    })
}

/// Parses a number, or `MAX` minus something: the largest offset.
fn number(text: &str) -> i64 {
    match text.trim().strip_prefix("MAX") {
        Some("") => i64::MAX,
        Some(less) => {
            i64::MAX
                - less
                    .strip_prefix('_')
                    .expect("MAX_less")
                    .parse::<i64>()
                    .unwrap()
        }
        None => text
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{text:?} is not a number")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    assert_eq!(digits.len() % 2, 0, "{text:?} is cut");
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
