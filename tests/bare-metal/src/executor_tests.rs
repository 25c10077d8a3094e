//! Tests of the executor. Nothing here depends on time but the limit after which a test counts as hanging.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::ops::ControlFlow::{Break, Continue};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use super::{Ready, Timers, Turns, run};

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

#[test]
fn each_task_is_polled_only_when_it_was_woken() {
    static READY: Ready<3> = Ready::new();
    let polled = [const { Cell::new(0) }; 3];
    let wakers: [Cell<Option<Waker>>; 3] = Default::default();
    let count = |task: usize| {
        let (polled, wakers) = (&polled, &wakers);
        poll_fn(move |context| {
            polled[task].set(polled[task].get() + 1);
            wakers[task].set(Some(context.waker().clone()));
            Poll::<()>::Pending
        })
    };
    let seen = || [0, 1, 2].map(|task: usize| polled[task].get());
    let mut rounds = 0;
    let slept = Cell::new(0);
    let drive = || {
        rounds += 1;
        let wake = |task: usize| wakers[task].take().unwrap().wake();
        match rounds {
            1 => assert_eq!(seen(), [1, 1, 1], "new tasks are ready"),
            2 => {
                assert_eq!(seen(), [1, 1, 1]);
                wake(1);
            }
            3 => {
                assert_eq!(seen(), [1, 2, 1]);
                wake(2);
                wake(0);
            }
            4 => {
                assert_eq!(seen(), [2, 2, 2]);
                // A waker that is used twice is one wake-up.
                let waker = wakers[2].take().unwrap();
                waker.wake_by_ref();
                waker.wake();
            }
            _ => {
                assert_eq!(seen(), [2, 2, 3]);
                return Break(());
            }
        }
        Continue(())
    };
    run(
        &READY,
        [pin!(count(0)), pin!(count(1)), pin!(count(2))],
        drive,
        |()| slept.set(slept.get() + 1),
    );
    // After the first round only: in the others `drive` has woken a task.
    assert_eq!(slept.get(), 1);
}

#[test]
fn a_task_that_wakes_itself_starves_neither_the_others_nor_what_drives() {
    static READY: Ready<3> = Ready::new();
    let selfish = Cell::new(0);
    let turns = Cell::new(0);
    let other: Cell<Option<Waker>> = Cell::new(None);
    let others = Cell::new(0);
    let greedy = || {
        poll_fn(|context| {
            selfish.set(selfish.get() + 1);
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
    };
    let modest = poll_fn(|context| {
        others.set(others.get() + 1);
        other.set(Some(context.waker().clone()));
        Poll::<()>::Pending
    });
    let drive = || {
        turns.set(turns.get() + 1);
        if turns.get() == 100 {
            return Break(());
        }
        other.take().unwrap().wake();
        Continue(())
    };
    run(
        &READY,
        [pin!(greedy()), pin!(modest), pin!(greedy())],
        drive,
        |()| panic!("a task is ready"),
    );
    assert_eq!((selfish.get(), others.get()), (200, 100));
}

#[test]
fn a_task_that_has_ended_is_not_polled_and_does_not_prevent_sleep() {
    static READY: Ready<1> = Ready::new();
    let waker: Cell<Option<Waker>> = Cell::new(None);
    let polled = Cell::new(0);
    let task = poll_fn(|context| {
        polled.set(polled.get() + 1);
        waker.set(Some(context.waker().clone()));
        Poll::Ready(())
    });
    let slept = Cell::new(0);
    let drive = || match slept.get() {
        2 => Break(()),
        _ => Continue(()),
    };
    run(&READY, [pin!(task)], drive, |()| {
        slept.set(slept.get() + 1);
        // It is woken too late.
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    });
    assert_eq!(polled.get(), 1);
}

#[test]
fn a_wake_up_before_the_sleep_is_not_lost() {
    // Another thread is the device: it answers each request with a wake-up, as soon as it comes, which may be before
    // the task has returned, between that and the sleep, or during it. Thread::unpark is like an interrupt: it ends the
    // next sleep if it comes before.
    static READY: Ready<2> = Ready::new();
    static ANSWERS: Mutex<u32> = Mutex::new(0);
    const ROUNDS: u32 = 1_000;
    let (requests, asked) = channel::<Waker>();
    let sleeper = thread::current();
    let device = thread::spawn(move || {
        for waker in asked {
            *ANSWERS.lock().unwrap() += 1;
            waker.wake();
            sleeper.unpark();
        }
    });
    let done = Cell::new(false);
    let ask = async |requests: Sender<Waker>| {
        for round in 0..ROUNDS {
            let mut asked = false;
            poll_fn(|context| {
                if !asked {
                    asked = true;
                    requests.send(context.waker().clone()).unwrap();
                    return Poll::Pending;
                }
                match *ANSWERS.lock().unwrap() {
                    answers if answers > round => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            })
            .await;
        }
        done.set(true);
    };
    let drive = || if done.get() { Break(()) } else { Continue(()) };
    run(
        &READY,
        [pin!(ask(requests)), pin!(pending())],
        drive,
        |()| {
            let limit = Duration::from_secs(60);
            let before = std::time::Instant::now();
            thread::park_timeout(limit);
            assert!(before.elapsed() < limit, "a wake-up was lost");
        },
    );
    assert_eq!(*ANSWERS.lock().unwrap(), ROUNDS);
    device.join().unwrap();
}

#[test]
fn timers_wake_in_the_order_of_their_times() {
    static READY: Ready<3> = Ready::new();
    let timers = Timers::<3>::new();
    let clock = Cell::new(ms(1));
    let order = RefCell::new(Vec::new());
    let wait = async |task, time| {
        timers.until(task, ms(time)).await;
        order.borrow_mut().push((task, clock.get()));
    };
    let mut slept = Vec::new();
    let drive = || match timers.wake(clock.get()) {
        _ if order.borrow().len() == 3 => Break(()),
        until => Continue(until),
    };
    run(
        &READY,
        [pin!(wait(0, 30)), pin!(wait(1, 10)), pin!(wait(2, 20))],
        drive,
        |until: Option<Duration>| {
            let until = until.unwrap();
            slept.push(until);
            clock.set(until);
        },
    );
    assert_eq!(*order.borrow(), [(1, ms(10)), (2, ms(20)), (0, ms(30))]);
    assert_eq!(slept, [10, 20, 30].map(ms));
}

#[test]
fn a_timer_that_is_dropped_wakes_nobody() {
    static READY: Ready<1> = Ready::new();
    let timers = Timers::<1>::new();
    let task = async {
        {
            let mut timer = pin!(timers.until(0, ms(10)));
            poll_fn(|context| {
                assert!(timer.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        pending().await
    };
    let mut driven = 0;
    let drive = || {
        driven += 1;
        assert_eq!(timers.wake(ms(driven)), None);
        if driven == 20 {
            Break(())
        } else {
            Continue(())
        }
    };
    run(&READY, [pin!(task)], drive, |()| {});
}

#[test]
fn a_time_that_has_passed_is_not_waited_for() {
    static READY: Ready<1> = Ready::new();
    let timers = Timers::<1>::new();
    timers.wake(ms(10));
    let done = Cell::new(false);
    let task = async {
        timers.until(0, ms(10)).await;
        done.set(true);
    };
    run(&READY, [pin!(task)], || Break::<_, ()>(()), |()| {});
    assert!(done.get());
}

#[test]
fn turns_are_taken_one_at_a_time_by_all() {
    static READY: Ready<3> = Ready::new();
    let turns = Turns::<3>::new();
    let (inside, left) = (Cell::new(0), Cell::new(3));
    let order = RefCell::new(Vec::new());
    let work = async |task| {
        for _ in 0..2 {
            let turn = turns.take(task).await;
            assert_eq!(inside.replace(1), 0);
            // Another task would come in here.
            let mut paused = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                match core::mem::replace(&mut paused, true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            order.borrow_mut().push(task);
            inside.set(0);
            drop(turn);
        }
        left.set(left.get() - 1);
    };
    let mut rounds = 0;
    let drive = || {
        rounds += 1;
        assert!(rounds < 100, "a task waits for good: {:?}", order.borrow());
        if left.get() == 0 {
            Break(())
        } else {
            Continue(())
        }
    };
    run(
        &READY,
        [pin!(work(0)), pin!(work(1)), pin!(work(2))],
        drive,
        |()| panic!("no task has the turn, or the one that has it was not woken"),
    );
    let mut order = order.into_inner();
    order.sort_unstable();
    assert_eq!(order, [0, 0, 1, 1, 2, 2]);
}
