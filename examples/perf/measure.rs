//! The measurements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bareverbs::verbs::{Platform, Remote, SendFlags, Sge};

use super::Result;
use super::end::{End, Pair};

/// The operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Read,
    Send,
    Atomic,
}

/// How long all messages took, and the tenth of them that was fastest.
pub(crate) struct Took {
    pub(crate) all: Duration,
    pub(crate) iterations: u32,
    pub(crate) best_tenth: Duration,
    pub(crate) tenth: u32,
}

/// Posts `count` operations with one doorbell.
fn post<P: Platform>(
    end: &mut End<'_, P>,
    verb: Verb,
    sge: Sge,
    remote: Remote,
    count: u32,
) -> Result<()> {
    let mut batch = end.qp.send_queue().batch();
    for _ in 0..count {
        let flags = SendFlags::SIGNALED;
        match verb {
            Verb::Write => batch.write(0, flags, remote, &[sge][..])?,
            Verb::Read => batch.read(0, flags, remote, &[sge])?,
            Verb::Send => batch.send(0, flags, &[sge][..])?,
            Verb::Atomic => batch.fetch_add(0, flags, remote, 1, sge)?,
        }
    }
    Ok(())
}

/// Runs what the other end has to do beside what this end does. Each is told when the other has failed.
fn beside<'d, P: Platform + Send + Sync, T: Send>(
    pair: &mut Pair<'d, P>,
    theirs: impl FnOnce(&mut End<'d, P>, &dyn Fn() -> bool) -> Result<()> + Send,
    ours: impl FnOnce(&mut End<'d, P>, &dyn Fn() -> bool) -> Result<T>,
) -> Result<T> {
    let Pair([a, b]) = pair;
    let failed = [AtomicBool::new(false), AtomicBool::new(false)];
    let [we_failed, they_failed] = &failed;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            let result = theirs(b, &|| we_failed.load(Ordering::Relaxed));
            they_failed.store(result.is_err(), Ordering::Relaxed);
            result
        });
        let result = ours(a, &|| they_failed.load(Ordering::Relaxed));
        we_failed.store(result.is_err(), Ordering::Relaxed);
        let other = other.join().map_err(|_| "the other end panicked")?;
        match (result, other) {
            (Ok(result), Ok(())) => Ok(result),
            // Who failed by itself says why.
            (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
            (Err(ours), Err(theirs)) => Err(format!("{ours}; at the other end: {theirs}").into()),
        }
    })
}

/// `iterations` messages with `depth` of them in flight.
pub(crate) fn bandwidth<P: Platform + Send + Sync>(
    pair: &mut Pair<'_, P>,
    verb: Verb,
    size: u32,
    depth: u32,
    iterations: u32,
) -> Result<Took> {
    let sge = pair.0[0].outbox(size)?;
    let remote = pair.0[1].remote();
    let inbox = pair.0[1].inbox(size)?;
    let ahead = if verb == Verb::Send {
        iterations.min(2 * depth)
    } else {
        0
    };
    for _ in 0..ahead {
        pair.0[1].qp.recv_queue().post(0, &[inbox])?;
    }
    beside(
        pair,
        |end, given_up| {
            let mut got = 0;
            let mut posted = ahead;
            while verb == Verb::Send && got < iterations {
                let reap = |end: &mut End<'_, P>| {
                    let count = End::reap(&mut end.recv_cq)?;
                    Ok((count > 0).then_some(count))
                };
                let count = end.spin(reap, given_up)?;
                got += count;
                for _ in 0..count.min(iterations - posted) {
                    end.qp.recv_queue().post(0, &[inbox])?;
                    posted += 1;
                }
            }
            Ok(())
        },
        |end, given_up| {
            let tenth = (iterations / 10).max(1);
            let (mut posted, mut done) = (0, 0);
            let mut best = Duration::MAX;
            let begun = Instant::now();
            let mut window = (begun, 0);
            while done < iterations {
                let room = (depth - (posted - done)).min(iterations - posted);
                if room > 0 {
                    post(end, verb, sge, remote, room)?;
                    posted += room;
                }
                let reap = |end: &mut End<'_, P>| {
                    let count = End::reap(&mut end.send_cq)?;
                    Ok((count > 0).then_some(count))
                };
                done += end.spin(reap, given_up)?;
                let passed = done - window.1;
                if passed >= tenth {
                    let now = Instant::now();
                    // Completions come in bunches: a window may have more than a tenth.
                    best = best.min((now - window.0) * tenth / passed);
                    window = (now, done);
                }
            }
            Ok(Took {
                all: begun.elapsed(),
                iterations,
                best_tenth: best,
                tenth,
            })
        },
    )
}

/// One operation after the other, each until its completion.
pub(crate) fn round_trips<P: Platform>(
    pair: &mut Pair<'_, P>,
    verb: Verb,
    size: u32,
    iterations: u32,
) -> Result<Vec<Duration>> {
    let remote = pair.0[1].remote();
    let end = &mut pair.0[0];
    let sge = end.outbox(size)?;
    let mut times = Vec::with_capacity(iterations as usize);
    for _ in 0..iterations {
        let begun = Instant::now();
        post(end, verb, sge, remote, 1)?;
        sent(end, &|| false)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Waits for the completion of the one operation in flight.
fn sent<P: Platform>(end: &mut End<'_, P>, given_up: &dyn Fn() -> bool) -> Result<()> {
    let reap = |end: &mut End<'_, P>| Ok((End::reap(&mut end.send_cq)? > 0).then_some(()));
    end.spin(reap, given_up)
}

/// A message there and one back, each seen by the receiver as applications do: a completion, or the last byte's change.
pub(crate) fn echo<P: Platform + Send + Sync>(
    pair: &mut Pair<'_, P>,
    verb: Verb,
    size: u32,
    iterations: u32,
) -> Result<Vec<Duration>> {
    let remotes = pair.0.each_ref().map(End::remote);
    if verb == Verb::Send {
        for end in &mut pair.0 {
            let inbox = end.inbox(size)?;
            end.qp.recv_queue().post(0, &[inbox])?;
        }
    }
    // Never what a mark before it, or an earlier measurement, left there.
    let mark = |number: u32| (number % 255) as u8 + 1;
    for end in &pair.0 {
        let inbox = end.inbox(size)?;
        let offset = (inbox.addr - end.buffer.addr()) as usize;
        end.buffer.fill(offset, size as usize, 0)?;
    }
    let answer = move |end: &mut End<'_, P>, given_up: &dyn Fn() -> bool, number: u32| {
        let arrived = |end: &mut End<'_, P>| {
            let there = match verb {
                Verb::Send => End::reap(&mut end.recv_cq)? > 0,
                _ => end.last_byte(size)? == mark(number),
            };
            Ok(there.then_some(()))
        };
        end.spin(arrived, given_up)?;
        // Room for the next one before the other end can know that this one came.
        if verb == Verb::Send && number + 1 < iterations {
            let inbox = end.inbox(size)?;
            end.qp.recv_queue().post(0, &[inbox])?;
        }
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    let say = move |end: &mut End<'_, P>, remote: Remote, number: u32| {
        end.mark(size, mark(number))?;
        let sge = end.outbox(size)?;
        post(end, verb, sge, remote, 1)
    };
    beside(
        pair,
        move |end, given_up| {
            for number in 0..iterations {
                answer(end, given_up, number)?;
                say(end, remotes[0], number)?;
                sent(end, given_up)?;
            }
            Ok(())
        },
        move |end, given_up| {
            let mut times = Vec::with_capacity(iterations as usize);
            for number in 0..iterations {
                let begun = Instant::now();
                say(end, remotes[1], number)?;
                answer(end, given_up, number)?;
                times.push(begun.elapsed());
                sent(end, given_up)?;
            }
            Ok(times)
        },
    )
}
