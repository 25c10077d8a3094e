//! Event channels: descriptors that are readable while the connection manager has an event.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Mutex;

use bareverbs_node::cm::rdma::{ChannelId, CmEvent};

use crate::abi::cma::rdma_event_channel;
use crate::process::descriptor::Counter;
use crate::process::failure::{Errno, Result, as_nothing, as_pointer, lock};
use crate::process::hca::{Cm, Hca};

/// An event channel. Its events wait in the connection managers of the devices that its ids are on.
#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) c: rdma_event_channel,
    counter: Counter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The channel's counterpart in each manager.
    managers: Vec<(&'static Hca, ChannelId)>,
    /// Counts that were put into the descriptor, without those of threads that have looked for an event since.
    counts: u32,
}

/// All channels, for the threads that drive the devices.
static CHANNELS: Mutex<Channels> = Mutex::new(Channels(Vec::new()));

/// The channels that were destroyed last, which stay for a while: `rping` destroys its channel while another of its threads is
/// about to wait for it. Such a thread then waits, as it does if it had begun to, and finds neither freed memory nor a
/// closed descriptor, for which `rping` would end with an error.
static DESTROYED: Mutex<VecDeque<Destroyed>> = Mutex::new(VecDeque::new());

/// The number of those that stay.
const STAY: usize = 8;

struct Destroyed {
    _channel: Box<EventChannel>,
}

// SAFETY: nothing is done with it but to drop it.
unsafe impl Send for Destroyed {}

struct Channels(Vec<*const EventChannel>);

// SAFETY: a channel leaves the list before it goes, and is only used while the list is locked.
unsafe impl Send for Channels {}

/// Makes the descriptors of event channels readable that have got events, and those unreadable that have none any more.
pub(crate) fn signal_channels() {
    for channel in &lock(&CHANNELS).0 {
        // SAFETY: a channel in the list is there.
        unsafe { &**channel }.signal();
    }
}

impl EventChannel {
    /// A channel without events.
    pub(crate) fn create() -> Result<*mut Self> {
        let counter = Counter::new()?;
        let c = rdma_event_channel { fd: counter.fd() };
        let channel = Box::into_raw(Box::new(Self {
            c,
            counter,
            state: Mutex::default(),
        }));
        lock(&CHANNELS).0.push(channel.cast_const());
        Ok(channel)
    }

    /// Destroys a channel, of which no id is left.
    ///
    /// # Safety
    /// It was made by [`create`](Self::create), and is not used again.
    pub(crate) unsafe fn destroy(channel: *mut Self) {
        lock(&CHANNELS)
            .0
            .retain(|other| !std::ptr::eq(*other, channel));
        // SAFETY: the caller promises that it was made by [`create`](Self::create), and is not used again.
        let channel = unsafe { Box::from_raw(channel) };
        let managers = std::mem::take(&mut lock(&channel.state).managers);
        for (hca, id) in managers {
            if let Ok(mut manager) = hca.manager()
                && let Err(error) = manager.destroy_event_channel(id)
            {
                log::debug!("{error}");
            }
        }
        let mut destroyed = lock(&DESTROYED);
        if destroyed.len() == STAY {
            destroyed.pop_front();
        }
        destroyed.push_back(Destroyed { _channel: channel });
    }

    /// The channel's counterpart in the manager of a device.
    pub(crate) fn on(&self, hca: &'static Hca) -> Result<ChannelId> {
        let mut state = lock(&self.state);
        let known = state.managers.iter().find(|(at, _)| std::ptr::eq(*at, hca));
        if let Some((_, id)) = known {
            return Ok(*id);
        }
        let id = hca.manager()?.create_event_channel()?;
        state.managers.push((hca, id));
        Ok(id)
    }

    /// Makes the descriptor readable if there is an event, and unreadable if there is none. To be called after whatever may add
    /// events or take some away, so that who polls the descriptor and who asks for an event see the same.
    pub(crate) fn signal(&self) {
        self.signal_locked(&mut lock(&self.state));
    }

    fn signal_locked(&self, state: &mut State) {
        let has_event = |(hca, id): &(&'static Hca, ChannelId)| {
            let manager = hca.manager_quietly();
            manager.is_ok_and(|manager| manager.has_cm_event(*id).unwrap_or(false))
        };
        if state.managers.iter().any(has_event) {
            // A count that is known may be gone: a thread has it that has not looked yet, or that was cancelled.
            if state.counts == 0 || !self.counter.is_readable() {
                state.counts += 1;
                self.counter.add();
            }
        } else {
            while state.counts > 0 && self.counter.try_take() {
                state.counts -= 1;
            }
        }
    }

    /// Waits until there may be an event, unless the program has made the descriptor non-blocking. The thread may be cancelled
    /// meanwhile, and is to look for the event ([`take`](Self::take)) afterwards.
    pub(crate) fn wait(&self) -> Result<()> {
        self.counter.take()
    }

    /// Takes an event after a wait; none if it went when the thread was about to take it. `taken` is called with the manager
    /// locked, so that the event's id is still there.
    pub(crate) fn take<R>(
        &self,
        mut taken: impl FnMut(&'static Hca, &mut Cm, CmEvent) -> R,
    ) -> Result<Option<R>> {
        let mut state = lock(&self.state);
        state.counts = state.counts.saturating_sub(1);
        let mut found = None;
        for (hca, id) in &state.managers {
            let mut manager = hca.manager_quietly()?;
            if let Some(event) = manager.try_get_cm_event(*id)? {
                found = Some(taken(hca, &mut manager, event));
                break;
            }
        }
        self.signal_locked(&mut state);
        Ok(found)
    }
}

/// The object behind a channel of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
pub(crate) unsafe fn channel<'a>(channel: *mut rdma_event_channel) -> Result<&'a EventChannel> {
    // SAFETY: the caller's promise: it is the first field of an `EventChannel`.
    unsafe { channel.cast::<EventChannel>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Creates an event channel: `rdma_create_event_channel`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    as_pointer(|| Ok(EventChannel::create()?.cast()))
}

/// Destroys an event channel: `rdma_destroy_event_channel`.
///
/// # Safety
/// It was created here, no id reports to it any more, and it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    as_nothing(|| {
        if !channel.is_null() {
            // SAFETY: the caller promises that it was created here, no id reports to it any more, and it is not used again.
            unsafe { EventChannel::destroy(channel.cast()) };
        }
        Ok(())
    });
}
