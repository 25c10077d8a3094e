//! Waiting in tasks: whatever comes in whichever order, a task is woken for what it waits for, and only while it does.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bareverbs_core::{AsyncEvent, CqError, DeviceError, Rc, Wc};
use bareverbs_firmware_cmds::event::{Event, PortChange};
use bareverbs_firmware_cmds::numbers::Cqn;

use crate::rig::{Rig, cap, doorbells, pair};
use crate::support::Fake;
use crate::support::random::Random;
use crate::{SGE, SIGNALED, poll};

/// A task that counts how often it was woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    fn new() -> (Arc<Self>, Waker) {
        let task = Arc::new(Self::default());
        (task.clone(), task.into())
    }

    fn woken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// The device's work on the CQ: it completes what is posted, and sends events when it was asked for them.
struct Device<'a> {
    fake: &'a Fake,
    rig: &'a Rig,
    cqn: u32,
    completed: u32,
    armed: bool,
    /// Events that it has sent, and that are not in the event queue yet.
    on_their_way: u32,
}

impl Device<'_> {
    fn see_doorbells(&mut self) {
        for (offset, value) in doorbells(self.fake) {
            if offset == 0x20 && value as u32 == self.cqn {
                let consumed = (value >> 32) as u32 & 0xff_ffff;
                self.armed = true;
                if self.completed > consumed {
                    self.send_event();
                }
            }
        }
    }

    fn send_event(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.on_their_way += 1;
        }
    }

    fn complete(&mut self) {
        let counter = self.completed as u16;
        self.rig
            .complete(self.fake, self.cqn, 0x100, 0, counter, 0x0a);
        self.completed += 1;
        self.send_event();
    }

    fn deliver(&mut self) {
        if self.on_their_way > 0 {
            self.on_their_way -= 1;
            let cqn = Cqn::from_low_bits(self.cqn);
            self.fake.event(Event::Completion(cqn));
        }
    }
}

const SENDS: u32 = 48;

/// Completions, events, polls and futures that come and go, in an order drawn from the seed.
fn drawn(seed: u64) {
    with_device!(|fake, rig, device, pd| {
        let mut random = Random(seed);
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(SENDS, 0, 1, 0), SENDS, true);
        for id in 0..SENDS {
            qp.send_queue()
                .batch()
                .send(id.into(), SIGNALED, SGE)
                .unwrap();
        }
        doorbells(&fake);
        let mut model = Device {
            fake: &fake,
            rig: &rig,
            cqn: cq.cqn().number(),
            completed: 0,
            armed: false,
            on_their_way: 0,
        };
        let mut taken = 0;
        let mut check = |wc: Option<Wc>| {
            if let Some(wc) = wc {
                assert_eq!(wc.wr_id, u64::from(taken), "seed {seed}");
                taken += 1;
            }
            taken
        };
        while check(None) < SENDS {
            let device_acts = |random: &mut Random, model: &mut Device<'_>| {
                match random.next() % 4 {
                    0 if model.completed < SENDS => model.complete(),
                    1 => model.deliver(),
                    2 => device.poll().unwrap(),
                    _ => {}
                }
                model.see_doorbells();
            };
            match random.next() % 4 {
                0 => {
                    check(poll(&mut cq));
                }
                1 => cq.arm(random.next().is_multiple_of(2)),
                2 => device_acts(&mut random, &mut model),
                _ => {
                    // Several tasks, of which the one that polled last waits.
                    let tasks = [Task::new(), Task::new()];
                    let mut waiting = Box::pin(cq.next());
                    let mut waits = None;
                    for _ in 0..random.next() % 24 {
                        if random.next().is_multiple_of(3) {
                            let number = (random.next() % 2) as usize;
                            let (task, waker) = &tasks[number];
                            let before = task.woken();
                            match poll_once(waiting.as_mut(), waker) {
                                Poll::Ready(wc) => {
                                    check(Some(wc.unwrap()));
                                    waits = None;
                                    break;
                                }
                                Poll::Pending => waits = Some((number, before)),
                            }
                            model.see_doorbells();
                        } else {
                            device_acts(&mut random, &mut model);
                        }
                    }
                    if let Some((number, before)) = waits {
                        while model.on_their_way > 0 {
                            model.deliver();
                        }
                        device.poll().unwrap();
                        model.see_doorbells();
                        if model.completed > check(None) {
                            let (task, waker) = &tasks[number];
                            assert!(task.woken() > before, "seed {seed}: a wake-up is lost");
                            if random.next().is_multiple_of(2) {
                                let Poll::Ready(wc) = poll_once(waiting.as_mut(), waker) else {
                                    panic!("seed {seed}: woken for nothing");
                                };
                                check(Some(wc.unwrap()));
                            }
                        }
                    }
                    drop(waiting);
                    let woken = tasks.each_ref().map(|(task, _)| task.woken());
                    model.deliver();
                    device.poll().unwrap();
                    for (woken, (task, _)) in woken.into_iter().zip(&tasks) {
                        assert_eq!(Arc::strong_count(task), 2, "seed {seed}: a waker is kept");
                        assert_eq!(task.woken(), woken, "seed {seed}: woken after its future");
                    }
                }
            }
            model.see_doorbells();
        }
        assert_eq!(cq.garbage_completions(), 0, "seed {seed}");
    });
}

#[test]
fn no_wake_up_is_lost() {
    for seed in 0..300 {
        drawn(seed);
    }
}

/// A future that is dropped leaves no waker behind, and the completion to the next one.
#[test]
fn a_dropped_future_keeps_nothing() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 0, 1, 0), 16, true);
        qp.send_queue().batch().send(1, SIGNALED, SGE).unwrap();
        let (task, waker) = Task::new();
        {
            let mut next = pin!(cq.next());
            assert!(poll_once(next.as_mut(), &waker).is_pending());
            assert_eq!(Arc::strong_count(&task), 3);
        }
        assert_eq!(Arc::strong_count(&task), 2);
        let cqn = cq.cqn();
        rig.complete(&fake, cqn.number(), 0x100, 0, 0, 0x0a);
        fake.event(Event::Completion(cqn));
        device.poll().unwrap();
        assert_eq!(task.woken(), 0);
        let Poll::Ready(Ok(())) = poll_once(pin!(cq.ready()), &waker) else {
            panic!("it is there");
        };
        let Poll::Ready(Ok(wc)) = poll_once(pin!(cq.next()), &waker) else {
            panic!("it is still there");
        };
        assert_eq!(wc.wr_id, 1);
        // What completes at once keeps none either.
        assert_eq!(Arc::strong_count(&task), 2);
    });
}

/// The event of a CQ wakes its own task only; a CQ that failed, and a device that did, wake the tasks whose completions will not come.
#[test]
fn failures_wake_tasks() {
    let fake = crate::rig::fake(0b11);
    let mut memory = crate::rig::Memory::new();
    let rig = Rig::new(&fake);
    {
        let device = crate::rig::open(&fake, &mut memory, bareverbs_core::Config::DEFAULT);
        let mut cqs = [15, 15].map(|cqe| {
            device
                .create_cq(bareverbs_core::CqInit::new(cqe))
                .expect("CQ")
        });
        let [first, second] = &mut cqs;
        let tasks = [Task::new(), Task::new(), Task::new()];
        let woken = || tasks.each_ref().map(|(task, _)| task.woken());
        let failed = first.cqn();
        {
            let mut first = pin!(first.next());
            let mut second = pin!(second.next());
            let mut event = pin!(device.async_event());
            assert!(poll_once(first.as_mut(), &tasks[0].1).is_pending());
            assert!(poll_once(second.as_mut(), &tasks[1].1).is_pending());
            assert!(poll_once(event.as_mut(), &tasks[2].1).is_pending());
            device.poll().unwrap();
            assert_eq!(woken(), [0, 0, 0]);

            fake.event(Event::CqError {
                cqn: failed,
                syndrome: 1,
            });
            device.poll().unwrap();
            assert_eq!(woken(), [1, 0, 1]);
            let Poll::Ready(Err(CqError::Failed { cqn, syndrome: 1 })) =
                poll_once(first.as_mut(), &tasks[0].1)
            else {
                panic!("the CQ has failed");
            };
            assert_eq!(cqn, failed);
            let Poll::Ready(Ok(AsyncEvent::CqError { .. })) =
                poll_once(event.as_mut(), &tasks[2].1)
            else {
                panic!("an event");
            };
            assert!(poll_once(event.as_mut(), &tasks[2].1).is_pending());

            fake.lock().gone = true;
            assert_eq!(device.poll(), Ok(()));
            fake.lock().now += std::time::Duration::from_secs(60);
            assert_eq!(device.poll(), Err(DeviceError::Gone));
            assert_eq!(woken(), [1, 1, 2]);
            let Poll::Ready(Err(CqError::Device(DeviceError::Gone))) =
                poll_once(second.as_mut(), &tasks[1].1)
            else {
                panic!("the device has failed");
            };
            let Poll::Ready(Ok(AsyncEvent::DeviceFatal(DeviceError::Gone))) =
                poll_once(event.as_mut(), &tasks[2].1)
            else {
                panic!("the device says so");
            };
            let Poll::Ready(Err(DeviceError::Gone)) = poll_once(event, &tasks[2].1) else {
                panic!("no event comes any more");
            };
        }
        let counts = tasks.each_ref().map(|(task, _)| Arc::strong_count(task));
        assert_eq!(counts, [2, 2, 2]);
    }
    let _ = rig;
}

/// Of two tasks that wait for asynchronous events one gets each, and none sleeps on while there is one.
#[test]
fn tasks_take_turns_with_asynchronous_events() {
    with_device!(|fake, rig, device, pd| {
        let tasks = [Task::new(), Task::new()];
        let woken = || tasks.each_ref().map(|(task, _)| task.woken());
        let mut first = Box::pin(device.async_event());
        let mut second = Box::pin(device.async_event());
        assert!(poll_once(first.as_mut(), &tasks[0].1).is_pending());
        assert!(poll_once(second.as_mut(), &tasks[1].1).is_pending());
        // The first one's place is taken, and it knows.
        assert_eq!(woken(), [1, 0]);
        // Whose place it is now, is not this one's to forget.
        drop(first);
        assert_eq!(woken(), [1, 1]);
        assert!(poll_once(second.as_mut(), &tasks[1].1).is_pending());
        fake.event(Event::PortChange {
            port: 1,
            change: PortChange::Down,
        });
        device.poll().unwrap();
        assert_eq!(woken(), [1, 2]);
        let event = poll_once(second.as_mut(), &tasks[1].1);
        assert_eq!(event, Poll::Ready(Ok(AsyncEvent::PortError { port: 1 })));
        drop(second);
        let _ = (rig, pd);
    });
}
