//! One descriptor for all that a device's user waits for.

// UNSAFETY: lends a file descriptor.
#![expect(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use bareverbs_core::platform::VectorSet;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::timerfd::TimerFd;

use crate::interrupts::{Interrupts, Watch};
use crate::removal::Removals;

/// A descriptor that is readable once there is a reason to drive the device
/// ([`VfioDevice::event_channel`](crate::VfioDevice::event_channel)): an interrupt, the deadline that was set, a
/// wake-up by another thread (`Device::wake`), or the loss of the function, because the kernel requests it back or the bus
/// reported an error.
///
/// It takes the place of `ibv_comp_channel.fd`, `ibv_context.async_fd` and `rdma_event_channel.fd`: what happened is
/// known after the device was polled. It goes into `poll`, `epoll`, mio's `SourceFd` or tokio's `AsyncFd`, level- or
/// edge-triggered.
///
/// A turn of the loop has four steps, and their order is what makes sure that nothing is missed:
///
/// 1. [`acknowledge`](Self::acknowledge): from here on the next interrupt makes the descriptor readable again;
/// 2. poll the device (`Device::poll`, or `RdmaCm::poll`, which does it);
/// 3. take everything that is there: completions, until there are none after arming, and events;
/// 4. [`set_deadline`](Self::set_deadline) to `next_deadline` of what was polled.
///
/// ```no_run
/// use std::os::fd::AsRawFd;
/// use bareverbs_core::{Config, CqInit, Cqs, Device, PageChunks, Qps, Resources, Srqs, VectorSet};
/// use bareverbs_vfio::{Options, VfioDevice};
/// use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let platform = VfioDevice::open_with("0000:3b:00.0".parse()?, Options::with_vectors(1))?;
/// let mut channel = platform.event_channel(VectorSet::ALL)?;
/// let mut config = Config::DEFAULT;
/// config.interrupts = true;
/// let mut resources = Box::new(Resources::<Qps<8>, Cqs<8>, Srqs<1>, PageChunks<256>>::new());
/// let device = Device::open(platform, config, resources.storage())?;
/// let mut cq = device.create_cq(CqInit::new(63))?;
///
/// let epoll = Epoll::new()?;
/// const CARD: u64 = 0; // other descriptors have other numbers
/// epoll.ctl(ControlOperation::Add, channel.as_raw_fd(), EpollEvent::new(EventSet::IN, CARD))?;
/// loop {
///     channel.acknowledge()?;
///     device.poll()?;
///     loop {
///         while let Some(completion) = cq.poll()? {
///             println!("work request {} is complete", completion.wr_id());
///         }
///         // Before the first sleep, and after each event: what came before the CQ was armed need not make one.
///         cq.take_event();
///         cq.arm(false);
///         match cq.poll()? {
///             None => break,
///             Some(completion) => println!("work request {} is complete", completion.wr_id()),
///         }
///     }
///     while let Some(event) = device.next_async_event() {
///         println!("{event:?}");
///     }
///     channel.set_deadline(device.next_deadline())?;
///
///     let mut ready = [EpollEvent::default(); 16];
///     let count = epoll.wait(-1, &mut ready)?;
///     for event in &ready[..count] {
///         if event.data() != CARD {
///             println!("something else to do");
///         }
///     }
/// }
/// # }
/// ```
///
/// It may outlive the device, but reports nothing any more then.
pub struct EventChannel {
    watch: Watch,
    timer: TimerFd,
    /// When the platform's clock started.
    started: Instant,
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel")
            .field("fd", &self.as_raw_fd())
            .finish_non_exhaustive()
    }
}

impl EventChannel {
    pub(crate) fn new(
        interrupts: &Interrupts,
        vectors: VectorSet,
        removals: &Removals,
        started: Instant,
    ) -> io::Result<Self> {
        let watch = Watch::new(interrupts, vectors, removals)?;
        let timer = TimerFd::new()?;
        watch.add(&timer, EventSet::IN | EventSet::EDGE_TRIGGERED)?;
        Ok(Self {
            watch,
            timer,
            started,
        })
    }

    /// Acknowledges what made the descriptor readable, so that it is not any more until something new happens; but that
    /// the function is lost stays said. Returns whether there was anything. To be called before the device is polled:
    /// afterwards it could acknowledge something that the poll did not see.
    pub fn acknowledge(&mut self) -> io::Result<bool> {
        self.watch.look()
    }

    /// Makes the descriptor readable at `deadline` on the platform's clock, or does not any more. There is one deadline at
    /// a time, and one that has passed does so at once.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) -> io::Result<()> {
        // A timer that is set to 0 never ends.
        const NOW: Duration = Duration::from_nanos(1);
        // More than the kernel's clock can count to.
        const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
        let left = match deadline {
            Some(deadline) => deadline
                .saturating_sub(self.started.elapsed())
                .clamp(NOW, NEVER),
            None => Duration::ZERO,
        };
        self.timer.reset(left, None)?;
        Ok(())
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as `self` is there, which is what the lifetime says.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.watch.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::removal::Removal;
    use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent};

    /// A function's events, and a program with an event loop.
    struct Program {
        interrupts: Interrupts,
        removals: Removals,
        started: Instant,
        channel: EventChannel,
        epoll: Epoll,
    }

    impl Program {
        fn new(how: EventSet) -> Self {
            let interrupts = Interrupts::new(2).unwrap();
            let removals = Removals::new().unwrap();
            let started = Instant::now();
            let channel =
                EventChannel::new(&interrupts, VectorSet::one(0), &removals, started).unwrap();
            let epoll = Epoll::new().unwrap();
            let event = EpollEvent::new(EventSet::IN | how, 0);
            epoll
                .ctl(ControlOperation::Add, channel.as_raw_fd(), event)
                .unwrap();
            Self {
                interrupts,
                removals,
                started,
                channel,
                epoll,
            }
        }

        fn raise(&self, vector: usize) {
            self.interrupts.events()[vector].write(1).unwrap();
        }

        fn is_readable(&self) -> bool {
            self.epoll.wait(0, &mut [EpollEvent::default()]).unwrap() != 0
        }

        fn sleep(&self) {
            let woken = self.epoll.wait(30_000, &mut [EpollEvent::default()]);
            assert_eq!(woken.unwrap(), 1, "nothing woke the program");
        }
    }

    const LEVEL: EventSet = EventSet::empty();

    #[test]
    fn an_interrupt_stays_readable_until_it_is_acknowledged() {
        let mut program = Program::new(LEVEL);
        assert!(!program.is_readable());
        assert!(!program.channel.acknowledge().unwrap());
        program.raise(0);
        program.raise(0);
        assert!(program.is_readable());
        assert!(program.is_readable());
        assert!(program.channel.acknowledge().unwrap());
        assert!(!program.is_readable());
        assert!(!program.channel.acknowledge().unwrap());
        // Another vector is another channel's.
        program.raise(1);
        assert!(!program.is_readable());
    }

    #[test]
    fn a_wake_makes_it_readable_until_it_is_acknowledged() {
        let mut program = Program::new(LEVEL);
        assert!(program.interrupts.wake());
        assert!(program.is_readable());
        assert!(program.channel.acknowledge().unwrap());
        assert!(!program.is_readable());
    }

    /// An interrupt at each point of a turn: there is no place where it gets lost, however the loop listens.
    #[test]
    fn an_interrupt_at_any_point_of_a_turn_wakes_the_program() {
        for how in [LEVEL, EventSet::EDGE_TRIGGERED] {
            for point in 0..4 {
                let mut program = Program::new(how);
                program.raise(0);
                program.sleep();
                let at = |program: &Program, here| {
                    if point == here {
                        program.raise(0);
                    }
                };
                at(&program, 0);
                assert!(program.channel.acknowledge().unwrap());
                // What was raised by now is seen by the poll that comes here; what is raised later need not be.
                let seen = point == 0;
                at(&program, 1);
                at(&program, 2);
                let deadline = program.started.elapsed() + Duration::from_secs(3600);
                program.channel.set_deadline(Some(deadline)).unwrap();
                at(&program, 3);
                assert!(seen || program.is_readable(), "{how:?}, point {point}");
            }
        }
    }

    #[test]
    fn each_channel_and_each_thread_sees_every_interrupt() {
        let mut program = Program::new(LEVEL);
        let Program {
            interrupts,
            removals,
            ..
        } = &program;
        let mut others = [VectorSet::ALL, VectorSet::one(0), VectorSet::one(1)].map(|vectors| {
            EventChannel::new(interrupts, vectors, removals, program.started).unwrap()
        });
        program.raise(0);
        let deadline = Instant::now() + Duration::from_secs(3600);
        assert!(interrupts.wait(VectorSet::ALL, removals, deadline));
        let seen = others.each_mut().map(|other| other.acknowledge().unwrap());
        assert_eq!(seen, [true, true, false]);
        assert!(program.channel.acknowledge().unwrap());
        // A channel that is created late may have missed an event, so it checks once.
        let mut late = EventChannel::new(
            &program.interrupts,
            VectorSet::one(0),
            &program.removals,
            program.started,
        )
        .unwrap();
        assert!(late.acknowledge().unwrap());
        assert!(!late.acknowledge().unwrap());
    }

    #[test]
    fn a_deadline_wakes_the_program_once() {
        for how in [LEVEL, EventSet::EDGE_TRIGGERED] {
            let mut program = Program::new(how);
            let deadline = program.started.elapsed() + Duration::from_millis(3);
            program.channel.set_deadline(Some(deadline)).unwrap();
            program.sleep();
            assert!(program.started.elapsed() >= deadline);
            assert!(program.channel.acknowledge().unwrap());
            assert!(!program.is_readable());
            // One that has passed.
            program.channel.set_deadline(Some(deadline)).unwrap();
            program.sleep();
            assert!(program.channel.acknowledge().unwrap());
            // One that is called off, and those that never come.
            for never in [None, Some(Duration::MAX)] {
                let deadline = program.started.elapsed() + Duration::from_millis(1);
                program.channel.set_deadline(Some(deadline)).unwrap();
                program.channel.set_deadline(never).unwrap();
                program.channel.acknowledge().unwrap();
                let late = program.epoll.wait(5, &mut [EpollEvent::default()]);
                assert_eq!(late.unwrap(), 0, "{never:?}");
            }
        }
    }

    #[test]
    fn a_lost_function_stays_readable() {
        for removal in [Removal::Requested, Removal::BusError] {
            let mut program = Program::new(LEVEL);
            program.removals.event(removal).write(1).unwrap();
            for _ in 0..3 {
                program.sleep();
                assert!(program.channel.acknowledge().unwrap());
                assert_eq!(program.removals.look(), Some(removal));
            }
        }
    }
}
