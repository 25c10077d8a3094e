//! One message after the other: there and one back, each seen by the receiver as applications do (a completion, or the
//! last byte's change), or each until its completion, where the operation itself brings an answer.

use std::time::Instant;

use bareverbs::cm::rdma::Resolver;
use bareverbs::verbs::Platform;

use bareverbs_examples::Result;
use bareverbs_examples::times::Times;

use super::flow::{Budget, each, expect, post};
use super::session::Session;
use super::test::{Test, Verb};

/// Never what the mark before it, or an empty inbox, left there.
fn mark(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

fn say<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: &Test,
    number: u64,
) -> Result<()> {
    session
        .outbox
        .copy_in(test.size as usize - 1, &[mark(number)])?;
    operate(session, test)
}

/// Posts one operation.
fn operate<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: &Test,
) -> Result<()> {
    let (sge, remote) = (session.outgoing(test.size)?, session.remote);
    post(&mut session.data()?, test.verb, sge, remote, 1)
}

/// Waits for the completion of the one operation in flight, unless it was seen.
fn sent<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    seen: bool,
) -> Result<()> {
    if seen {
        return Ok(());
    }
    session.spin(|data, _| Ok((each(&mut data.send_cq, |_| {})? > 0).then_some(())))
}

/// Waits for a message. Whether a completion of what was sent was seen by the way; `None`: the client has had enough.
fn arrived<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: &Test,
    number: u64,
) -> Result<Option<bool>> {
    let last = test.size as usize - 1;
    let (mut polls, mut seen) = (0u32, false);
    session.watch(true, |data, inbox| {
        polls = polls.wrapping_add(1);
        // A failed request gets no answer, so its completion is checked as well.
        if polls.is_multiple_of(256) {
            seen |= each(&mut data.send_cq, |_| {})? > 0;
        }
        let there = if test.verb == Verb::Send {
            let there = each(&mut data.recv_cq, |_| {})? > 0;
            if there {
                // Before the peer can detect that this one arrived.
                expect(data, inbox)?;
            }
            there
        } else {
            let mut byte = [0];
            inbox.copy_out(last, &mut byte)?;
            byte[0] == mark(number)
        };
        Ok(there.then_some(seen))
    })
}

/// The client's part. The time of each message, there and back.
pub(crate) fn measure<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: &Test,
    budget: Budget,
) -> Result<Times> {
    let start = Instant::now();
    let mut times = Times::default();
    for number in 0.. {
        if budget.left(start, number) == 0 {
            break;
        }
        let started = Instant::now();
        if test.verb.is_answered() {
            operate(session, test)?;
            sent(session, false)?;
            times.record(started.elapsed(), 1);
        } else {
            say(session, test, number)?;
            let seen = arrived(session, test, number)?.ok_or("no echo")?;
            times.record(started.elapsed(), 1);
            sent(session, seen)?;
        }
    }
    Ok(times)
}

/// The server's part. How many messages it has answered.
pub(crate) fn answer<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: &Test,
) -> Result<u64> {
    let mut number = 0;
    while arrived(session, test, number)?.is_some() {
        say(session, test, number)?;
        sent(session, false)?;
        number += 1;
    }
    Ok(number)
}
