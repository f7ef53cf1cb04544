use std::time::{Duration, Instant};

use super::{Acknowledged, ErrorCode, InFlight, SourceRange, Ticket, WINDOW, after};

type Machine = InFlight<&'static str, u32>;

/// Pushes a batch of 10 records whose source offsets identify it.
fn push(machine: &mut Machine, partition: &'static str, number: u32) {
    machine.push(&partition, number, 100, 10, range(number));
}

fn range(number: u32) -> SourceRange {
    let first = i64::from(number) * 10;
    SourceRange {
        partition: 0,
        first,
        last: first + 9,
    }
}

fn plan(machine: &mut Machine, broker: i32, now: Instant) -> Option<(Ticket, Vec<u32>)> {
    let outgoing = machine.plan(broker, |_| Some(broker), now)?;
    let numbers = outgoing.batches.iter().map(|(_, number)| *number);
    Some((outgoing.ticket, numbers.collect()))
}

/// Returns a machine with one partition's full window in flight at broker 1, and a sixth batch waiting.
fn in_flight(now: Instant) -> (Machine, Vec<Ticket>) {
    let mut machine = InFlight::new(1_000);
    for number in 0..6 {
        push(&mut machine, "a", number);
    }
    let mut tickets = Vec::new();
    while let Some((ticket, numbers)) = plan(&mut machine, 1, now) {
        assert_eq!(numbers.len(), 1, "one batch of a partition per request");
        tickets.push(ticket);
    }
    assert_eq!(tickets.len(), WINDOW);
    (machine, tickets)
}

fn later(now: Instant) -> Instant {
    now + Duration::from_secs(1)
}

#[test]
fn the_sequence_after_the_highest_is_zero() {
    assert_eq!(after(i32::MAX, 1), 0);
    assert_eq!(after(i32::MAX - 1, 5), 3);
    let mut machine = Machine::new(1_000);
    push(&mut machine, "a", 0);
    assert_eq!(machine.next_sequence(&"a"), 10);
    machine.restart();
    assert_eq!(machine.next_sequence(&"a"), 0);
    assert!(machine.is_settled());
    assert_eq!(machine.held(), 0);
}

#[test]
fn an_answer_says_where_the_records_are() {
    let now = Instant::now();
    let (mut machine, tickets) = in_flight(now);
    let answered = machine.answered(tickets[0], [("a", ErrorCode(0), 500)], now);
    let expected = Acknowledged {
        target: "a",
        source: range(0),
        records: 10,
        base_offset: Some(500),
    };
    assert_eq!(answered.acknowledged, [expected]);
    assert_eq!(machine.held(), 500);
    // a duplicate is in the log, at an unknown offset
    let answered = machine.answered(tickets[1], [("a", ErrorCode(46), -1)], now);
    assert_eq!(answered.acknowledged[0].base_offset, None);
    assert!(answered.refused.is_none());
}

#[test]
fn a_failed_window_is_sent_again_in_order_once_all_is_answered() {
    let now = Instant::now();
    let (mut machine, tickets) = in_flight(now);
    machine.answered(tickets[0], [("a", ErrorCode(0), 0)], now);
    let failed = machine.answered(tickets[1], [("a", ErrorCode(6), -1)], now);
    assert!(failed.stale);
    for ticket in &tickets[2..4] {
        let follow_up = machine.answered(*ticket, [("a", ErrorCode(45), -1)], now);
        assert_eq!(follow_up.refused, None);
        assert_eq!(plan(&mut machine, 2, later(now)), None, "one still flies");
    }
    machine.answered(tickets[4], [("a", ErrorCode(45), -1)], now);
    assert_eq!(plan(&mut machine, 2, now), None, "there is a pause");
    let mut again = Vec::new();
    while let Some((_, numbers)) = plan(&mut machine, 2, later(now)) {
        again.extend(numbers);
    }
    assert_eq!(again, [1, 2, 3, 4, 5]);
}

#[test]
fn a_new_leader_gets_nothing_before_the_old_one_has_answered() {
    let now = Instant::now();
    let mut machine = InFlight::new(1_000);
    push(&mut machine, "a", 0);
    push(&mut machine, "a", 1);
    let (ticket, _) = plan(&mut machine, 1, now).unwrap();
    assert_eq!(plan(&mut machine, 2, now), None);
    machine.answered(ticket, [("a", ErrorCode(0), 0)], now);
    assert_eq!(plan(&mut machine, 2, now).unwrap().1, [1]);
}

#[test]
fn out_of_order_alone_is_final() {
    let now = Instant::now();
    let (mut machine, tickets) = in_flight(now);
    let answered = machine.answered(tickets[0], [("a", ErrorCode(45), -1)], now);
    let refused = answered.refused.unwrap();
    assert_eq!((refused.code, refused.source), (ErrorCode(45), range(0)));
}

#[test]
fn what_a_broker_will_never_take_is_named() {
    let now = Instant::now();
    for code in [10, 32, 47, 48, 87, 90, 120, 29, -1] {
        let (mut machine, tickets) = in_flight(now);
        let refused = machine
            .answered(tickets[0], [("a", ErrorCode(code), -1)], now)
            .refused;
        assert_eq!(refused.map(|refused| refused.code), Some(ErrorCode(code)));
    }
}

#[test]
fn an_answer_that_says_nothing_of_a_partition_counts_as_lost() {
    let now = Instant::now();
    let mut machine = InFlight::new(1_000);
    push(&mut machine, "a", 0);
    push(&mut machine, "b", 1);
    let (ticket, numbers) = plan(&mut machine, 1, now).unwrap();
    assert_eq!(numbers, [0, 1], "several partitions in one request");
    let answered = machine.answered(
        ticket,
        [("a", ErrorCode(0), 0), ("c", ErrorCode(0), 0)],
        now,
    );
    assert_eq!(answered.acknowledged.len(), 1);
    assert_eq!(plan(&mut machine, 1, later(now)).unwrap().1, [1]);
}

#[test]
fn a_full_request_starves_no_partition() {
    let now = Instant::now();
    let mut machine = InFlight::new(150);
    for number in 0..3 {
        push(&mut machine, "a", number);
        push(&mut machine, "b", 10 + number);
    }
    let sent: Vec<u32> = (0..4)
        .map(|_| plan(&mut machine, 1, now).unwrap().1[0])
        .collect();
    assert_eq!(sent, [0, 10, 1, 11]);
}

#[test]
fn requests_of_an_aborted_transaction_only_fill_the_window() {
    let now = Instant::now();
    let (mut machine, tickets) = in_flight(now);
    machine.restart();
    push(&mut machine, "a", 7);
    assert_eq!(plan(&mut machine, 1, now), None);
    let answered = machine.answered(tickets[0], [("a", ErrorCode(0), 77)], now);
    assert!(answered.acknowledged.is_empty());
    assert_eq!(plan(&mut machine, 1, now).unwrap().1, [7]);
}

#[test]
fn a_leader_still_remembers_a_batch_that_it_may_have_taken() {
    let now = Instant::now();
    let (mut machine, tickets) = in_flight(now);
    // accepted, but not confirmed by followers; the batches after it are
    machine.answered(tickets[0], [("a", ErrorCode(20), -1)], now);
    for (ticket, at) in tickets[1..].iter().zip(1..) {
        machine.answered(*ticket, [("a", ErrorCode(0), at)], now);
    }
    let (again, numbers) = plan(&mut machine, 1, later(now)).unwrap();
    assert_eq!(numbers, [0]);
    // the sixth would displace the first from the leader's memory
    assert_eq!(plan(&mut machine, 1, later(now)), None);
    machine.answered(again, [("a", ErrorCode(0), 0)], now);
    assert_eq!(plan(&mut machine, 1, later(now)).unwrap().1, [5]);
}
