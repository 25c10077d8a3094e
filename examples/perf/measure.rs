//! A measurement, from the client's side and from the server's. The server follows the client.

use std::time::Duration;

use bareverbs::cm::rdma::Resolver;
use bareverbs::verbs::Platform;

use super::echo;
use super::flow::{Budget, Flow, Meter, rate};
use super::protocol::{Answer, Ask, Tally};
use super::report::Numbers;
use super::session::Session;
use super::test::{Kind, Test, Verb};
use bareverbs_examples::Result;

/// As the client. How many messages it sent, and what was found.
pub(crate) fn measure<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: Test,
    budget: Budget,
) -> Result<(u64, Numbers)> {
    session.inbox.fill(0, session.inbox.len(), 0)?;
    match session.ask(&Ask::Start(test))? {
        Answer::Ready => {}
        other => return Err(format!("the server is not ready, but {other:?}").into()),
    }
    if test.kind == Kind::Lat {
        let times = echo::measure(session, &test, budget)?;
        let count = times.count();
        stop(
            session,
            Tally {
                sent: count,
                ..Tally::default()
            },
        )?;
        // As perftest has it: half of what there and back take.
        let parts = if test.verb.is_answered() { 1 } else { 2 };
        return Ok((count, Numbers::times(&times, parts)));
    }
    let mut flow = Flow::new(session, test)?;
    let mut meter = Meter::new(test.kind, budget);
    flow.run(session, true, &mut meter)?;
    let theirs = stop(session, flow.tally(&meter))?;
    flow.finish(session, Some(theirs))?;
    if test.both_ways {
        check_sum(session, &test, theirs)?;
    }
    let numbers = if test.kind == Kind::Load {
        Numbers::times(&meter.times, 1)
    } else {
        let [mut peak, mut average] = meter.rates();
        if test.both_ways {
            let there = rate(theirs.sent, Duration::from_nanos(theirs.nanos));
            peak += there.max(theirs.peak as f64);
            average += there;
        }
        Numbers::rate(test.size, peak, average)
    };
    Ok((meter.count(), numbers))
}

fn stop<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    ours: Tally,
) -> Result<Tally> {
    match session.ask(&Ask::Stop(ours))? {
        Answer::Done(theirs) => Ok(theirs),
        other => Err(format!("the server is not done, but {other:?}").into()),
    }
}

/// Every addition has to be there.
fn check_sum<P: Platform, R: Resolver>(
    session: &Session<'_, '_, '_, P, R>,
    test: &Test,
    theirs: Tally,
) -> Result<()> {
    let mut sum = [0; 8];
    session.inbox.copy_out(0, &mut sum)?;
    let sum = u64::from_ne_bytes(sum);
    if test.verb == Verb::FetchAdd && sum != theirs.sent {
        return Err(format!("{} additions of 1 came to {sum}", theirs.sent).into());
    }
    Ok(())
}

/// As the server: takes part in the client's tests until there are no more. How many there were.
pub(crate) fn follow<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
) -> Result<u64> {
    let mut tests = 0;
    loop {
        match session.asked()? {
            Ask::Start(test) => {
                let limits = session.limits;
                test.check(limits.largest, limits.deepest)?;
                if let Some(reason) = session.refusal(&test) {
                    return Err(reason.into());
                }
                log::info!("{test:?}");
                let during = |error| format!("{}: {error}", test.name());
                take_part(session, test).map_err(during)?;
                tests += 1;
            }
            Ask::Bye => return Ok(tests),
            other => return Err(format!("the client asks for {other:?} out of turn").into()),
        }
    }
}

fn take_part<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    test: Test,
) -> Result<()> {
    session.inbox.fill(0, session.inbox.len(), 0)?;
    let mut flow = Flow::new(session, test)?;
    session.answer(&Answer::Ready)?;
    let mut meter = Meter::new(Kind::Bw, Budget::Asked);
    let mut echoed = None;
    if test.kind == Kind::Lat {
        if !test.verb.is_answered() {
            echoed = Some(echo::answer(session, &test)?);
        }
    } else if test.verb == Verb::Send || test.both_ways {
        flow.run(session, test.both_ways, &mut meter)?;
    }
    let theirs = match session.asked()? {
        Ask::Stop(theirs) => theirs,
        other => return Err(format!("the client asks for {other:?} out of turn").into()),
    };
    match echoed {
        Some(count) if count != theirs.sent => {
            return Err(format!("{count} messages came, {} were sent", theirs.sent).into());
        }
        Some(_) => {}
        None => flow.finish(session, Some(theirs))?,
    }
    check_sum(session, &test, theirs)?;
    session.answer(&Answer::Done(flow.tally(&meter)))
}
