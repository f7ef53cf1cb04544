//! Feeds mutated bytes to every function of eomirror-core and eomirror-plane that reads external input.
//!
//! ```text
//! cargo run --release -p eomirror-fuzz -- TARGET [--seconds 60] [--seed 4711]
//! cargo run --release -p eomirror-fuzz -- all --seconds 60 --at-once 8
//! ```
//!
//! It runs on stable Rust, so it has neither instrumentation nor coverage. Instead inputs start from segments of a real
//! broker, and checksums and lengths are mostly corrected, so mutations reach the code after the checks. A failure
//! prints the seed that repeats it, and its input is left in a file.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a command line program

mod corpus;
mod mutate;
mod protocol;
mod targets;

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use mutate::Random;
use rustix::time::{ClockId, clock_gettime};
use targets::{TARGETS, Target};

/// More than any target needs within its own limits.
const MOST_MEMORY: u64 = 512 * 1024 * 1024;
/// An input that takes more processor time is a denial of service, on any machine and under any load.
const MOST_TIME: Duration = Duration::from_secs(10);

struct Arguments {
    targets: Vec<&'static Target>,
    seconds: u64,
    seed: u64,
    /// Number of targets that run at the same time, each in its own process: memory is measured per process.
    at_once: u64,
}

struct Report {
    inputs: u64,
    accepted: u64,
    slowest: Duration,
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!(
                "{reason}; usage: eomirror-fuzz all|{} [--seconds 60] [--seed 4711] [--at-once 1]",
                names.join("|")
            );
            return ExitCode::from(2);
        }
    };
    if arguments.at_once > 1 && arguments.targets.len() > 1 {
        return at_once(&arguments);
    }
    for target in arguments.targets {
        let time = Duration::from_secs(arguments.seconds);
        match run(target, arguments.seed, time) {
            Ok(report) => println!(
                "{:<10} seed {}: {} inputs, {} of them accepted, slowest {:?}, peak memory {} MB",
                target.name,
                arguments.seed,
                report.inputs,
                report.accepted,
                report.slowest,
                peak_memory() >> 20,
            ),
            Err(reason) => {
                eprintln!("{}: {reason}", target.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let name = words.next().ok_or("no target")?;
    let targets: Vec<_> = TARGETS
        .iter()
        .filter(|target| name == "all" || name == target.name)
        .collect();
    if targets.is_empty() {
        return Err(format!("no target {name:?}"));
    }
    let (mut seconds, mut seed, mut at_once) = (60, 4711, 1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| format!("{word} wants a number"))?;
        match &word[..] {
            "--seconds" => seconds = number,
            "--seed" => seed = number,
            "--at-once" => at_once = number,
            _ => return Err(format!("no option {word:?}")),
        }
    }
    Ok(Arguments {
        targets,
        seconds,
        seed,
        at_once,
    })
}

/// Runs every target in its own process, a limited number at a time; they inherit standard output.
fn at_once(arguments: &Arguments) -> ExitCode {
    let start = |target: &Target| {
        Command::new(std::env::current_exe()?)
            .arg(target.name)
            .args(["--seconds", &arguments.seconds.to_string()])
            .args(["--seed", &arguments.seed.to_string()])
            .spawn()
    };
    let mut running: VecDeque<io::Result<Child>> = VecDeque::new();
    let mut failed = false;
    let mut end = |running: &mut VecDeque<io::Result<Child>>| {
        let ended = running.pop_front();
        let status = ended.map(|child| child.and_then(|mut child| child.wait()));
        failed |= !matches!(status, Some(Ok(status)) if status.success());
    };
    for target in &arguments.targets {
        if running.len() as u64 >= arguments.at_once {
            end(&mut running);
        }
        running.push_back(start(target));
    }
    while !running.is_empty() {
        end(&mut running);
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Mutates and feeds inputs until the time is over.
fn run(target: &Target, seed: u64, time: Duration) -> Result<Report, String> {
    let corpus = (target.corpus)();
    let mut random = Random::new(seed);
    let mut report = Report {
        inputs: 0,
        accepted: 0,
        slowest: Duration::ZERO,
    };
    let start = Instant::now();
    while start.elapsed() < time {
        let mut input = corpus[random.below(corpus.len())].clone();
        for _ in 0..random.below(5) {
            mutate::mutate(&mut input, &corpus, &mut random);
        }
        (target.mend)(&mut input, &mut random);
        let choice = random.next();
        let began = processor_time();
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.feed)(&input, choice)));
        let took = processor_time().saturating_sub(began);
        let fault = match outcome {
            Ok(accepted) => {
                report.accepted += u64::from(accepted);
                (took > MOST_TIME).then(|| format!("an input took {took:?}"))
            }
            Err(_) => Some("it panicked".to_owned()),
        };
        let fault = fault.or_else(|| {
            let peak = peak_memory();
            // the peak never falls, and reading it costs more than most inputs
            (report.inputs % 256 == 0 && peak > MOST_MEMORY)
                .then(|| format!("{} MB of memory", peak >> 20))
        });
        if let Some(fault) = fault {
            let file = std::env::temp_dir().join(format!("eomirror-fuzz-{}.bin", target.name));
            let kept = std::fs::write(&file, &input);
            return Err(format!(
                "{fault}: seed {seed}, input {}, choice {choice}, {} bytes in {} ({kept:?})",
                report.inputs,
                input.len(),
                file.display()
            ));
        }
        report.slowest = report.slowest.max(took);
        report.inputs += 1;
    }
    Ok(report)
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    // the clock starts at zero
    Duration::try_from(now).unwrap_or_default()
}

/// Returns the peak memory of the process in bytes; 0 if the system does not report it.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map_or(0, |number| number * 1024)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TARGETS, arguments, run};

    /// A few seconds in all, for every change. `all --seconds 60` finds rarer defects.
    #[test]
    fn every_target_survives_its_first_mutations() {
        for target in TARGETS {
            let report = run(target, 4711, Duration::from_millis(700));
            let report = report.unwrap_or_else(|reason| panic!("{}: {reason}", target.name));
            assert!(report.accepted > 0, "{}: nothing is accepted", target.name);
            assert!(
                report.accepted < report.inputs,
                "{}: nothing is refused",
                target.name
            );
        }
    }

    /// A response of 24 MB in which each topic takes 3 bytes; a topic takes 64 bytes in memory.
    #[test]
    fn a_fetch_answer_of_tiny_topics_stays_within_the_memory_bound() {
        let count: u32 = 8 << 20;
        let mut body = vec![0; 10];
        let mut length = count + 1;
        while length >= 0x80 {
            body.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        body.push((length & 0x7f) as u8);
        // an empty name, no partitions, no tags
        body.extend([1, 1, 0].repeat(count as usize));
        body.push(0);
        assert!(eomirror_kafka::probe::fetch_answer(12, &body));
        let peak = super::peak_memory();
        assert!(peak < super::MOST_MEMORY, "{} MB of memory", peak >> 20);
    }

    #[test]
    fn a_target_that_panics_is_a_failure() {
        let broken = super::Target {
            name: "broken",
            feed: |_, _| panic!("on purpose"),
            ..TARGETS[0]
        };
        let reason = run(&broken, 1, Duration::from_secs(5)).err();
        assert!(reason.is_some_and(|reason| reason.contains("panicked: seed 1")));
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let parse = |line: &str| arguments(line.split(' ').map(str::to_owned));
        let all = parse("all --seconds 3 --seed 9 --at-once 2").ok();
        assert_eq!(
            all.map(|all| (all.targets.len(), all.seconds, all.seed, all.at_once)),
            Some((TARGETS.len(), 3, 9, 2))
        );
        for wrong in ["nothing", "relay --seconds", "relay --minutes 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
