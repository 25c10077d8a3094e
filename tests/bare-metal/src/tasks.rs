//! The server of `rping` with async/await: a task for each of several clients at once, and one for asynchronous events.
//! Its peers see no difference.

use core::array;
use core::cell::Cell;
use core::ops::ControlFlow;
use core::pin::pin;
use core::time::Duration;

use bareverbs::cm::rdma::{
    AddrInfo, AsyncCm, CmId, IdState, NeighbourDiscovery, RdmaError, SendFlags,
};
use bareverbs::verbs::WcStatus;
use bareverbs::verbs::mr::{Access, Buffer};
use bareverbs::verbs::platform::{Platform, VectorSet};
use futures_util::future::{Either, select};
use kernel::clock;
use kernel::executor::{self, Ready, Timers, Turns};

use crate::channel::{ChannelError, DREQ_TIMEOUT, failure};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::manager::Cm;
use crate::options::Options;
use crate::ping::{ADVERT, Advert, End, PingError};
use crate::rping::first_operation;

type Result<T> = core::result::Result<T, PingError>;

/// Clients at once: a task each.
const CLIENTS: usize = 4;
/// These, and the one for asynchronous events.
const TASKS: usize = CLIENTS + 1;

static READY: Ready<TASKS> = Ready::new();

/// State that the tasks share.
struct Server<'c, 's, 'd> {
    cm: AsyncCm<'c, 's, 'd, Machine, NeighbourDiscovery<'s, 'd, Machine>>,
    listener: CmId,
    /// Bytes of a message at most.
    size: u32,
    silence: Duration,
    /// Limits the time that clients are silent.
    timers: Timers<CLIENTS>,
    /// One task waits for a listener.
    listening: Turns<CLIENTS>,
    /// Clients that are still to come.
    left: Cell<u32>,
    /// Tasks that serve clients, or wait for them.
    working: Cell<usize>,
    /// Clients that are connected, and most of these so far.
    connected: [Cell<u32>; 2],
    pings: Cell<u32>,
    failed: Cell<Option<PingError>>,
}

/// One client, for the task that serves it.
struct Client<'d> {
    /// Of the task.
    task: usize,
    id: CmId,
    /// Advertisements arrive here.
    inbox: Buffer<'d, Machine>,
    /// Receives the client's data, and is written back to it.
    buffer: Buffer<'d, Machine>,
}

/// Listens, and serves as many clients as are wanted, several at once, until they disconnect.
pub(crate) fn serve(cm: &mut Cm<'_, '_>, options: &Options) -> core::result::Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, options.port).into()),
        ..AddrInfo::hints(true)
    };
    let listener = cm.create_ep(&address, None, Some(&mut End::<Machine>::queues()))?;
    cm.listen(listener, CLIENTS as u32)?;
    let device = cm.device();
    let server = Server {
        cm: AsyncCm::new(cm),
        listener,
        size: options.size,
        silence: options.silence,
        timers: Timers::new(),
        listening: Turns::new(),
        left: Cell::new(options.clients),
        working: Cell::new(CLIENTS),
        connected: [const { Cell::new(0) }; 2],
        pings: Cell::new(0),
        failed: Cell::new(None),
    };
    log::info!("listening on {} port {}", options.address, options.port);
    let [a, b, c, d] = array::from_fn(|task| server.work(task));
    executor::run(
        &READY,
        [pin!(a), pin!(b), pin!(c), pin!(d), pin!(server.watch())],
        || server.drive(),
        |until| {
            // Nothing has read events since the last turn, so that any of them ends this at once.
            device.platform().wait_interrupt(VectorSet::ALL, until);
        },
    )?;
    let Server {
        connected: [_, most],
        pings,
        failed,
        ..
    } = server;
    cm.destroy_ep(listener)?;
    let (pings, most) = (pings.get(), most.get());
    log::info!("rping server: {pings} pings, {most} clients at once");
    match failed.take() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

impl<'d> Server<'_, '_, 'd> {
    /// Drives the device and the manager, which wakes tasks; the end, or when there is more to do without an interrupt.
    fn drive(&self) -> ControlFlow<core::result::Result<(), RdmaError>, Duration> {
        if self.working.get() == 0 {
            return ControlFlow::Break(Ok(()));
        }
        match self.cm.turn() {
            Ok(turn) => {
                let timer = self.timers.wake(clock::since_boot());
                let next = [turn, timer].into_iter().flatten().min();
                ControlFlow::Continue(next.unwrap_or(Duration::MAX))
            }
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    /// Reports asynchronous events, and has the manager look at them.
    async fn watch(&self) {
        let device = self.cm.device();
        loop {
            match device.async_event().await {
                Ok(event) => {
                    log::info!("asynchronous event: {event:?}");
                    self.cm.with(|cm| cm.handle_async_event(&event));
                }
                // The next turn says so as well, and ends everything.
                Err(error) => return log::error!("asynchronous events: {error}"),
            }
        }
    }

    /// Serves one client after the other, until none is left.
    async fn work(&self, task: usize) {
        loop {
            let asked = {
                let _turn = self.listening.take(task).await;
                if self.left.get() == 0 {
                    break;
                }
                let asked = self.cm.get_request(self.listener).await;
                self.left.set(match asked {
                    // One that called it off before it was asked for counts as well.
                    Ok(_) | Err(RdmaError::Event { .. }) => self.left.get() - 1,
                    Err(_) => 0,
                });
                asked
            };
            let done = match asked {
                Ok(id) => self.serve(task, id).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = done {
                log::warn!("a client: {error}");
                self.failed.set(Some(error));
            }
        }
        self.working.set(self.working.get() - 1);
    }

    /// Serves a client that has asked for a connection, and cleans up.
    async fn serve(&self, task: usize, id: CmId) -> Result<()> {
        let served = self.connect(task, id).await;
        let destroyed = self.cm.with(|cm| cm.destroy_ep(id));
        served?;
        Ok(destroyed?)
    }

    async fn connect(&self, task: usize, id: CmId) -> Result<()> {
        let client = self.cm.with(|cm| {
            let inbox = cm.reg_msgs(id, ADVERT)?;
            let buffer = cm
                .pd(id)?
                .alloc_buffer(self.size as usize, Access::LOCAL_WRITE)?;
            cm.post_recv(id, 0, inbox.slice(..ADVERT)?)?;
            Ok::<_, RdmaError>(Client {
                task,
                id,
                inbox,
                buffer,
            })
        })?;
        self.cm.accept(id, None).await?;
        let [connected, most] = &self.connected;
        connected.set(connected.get() + 1);
        most.set(most.get().max(connected.get()));
        let done = self.answer(&client).await;
        // Nothing may be under way to the memory when it goes.
        let ended = self.cm.disconnect(id).await;
        connected.set(connected.get() - 1);
        done?;
        Ok(ended?)
    }

    /// Serves the pings of a client that is connected, until it disconnects.
    async fn answer(&self, client: &Client<'d>) -> Result<()> {
        let Client { id, buffer, .. } = client;
        let piece = |asked: &Advert| match asked.size {
            wanted if wanted <= self.size => {
                let piece = buffer.slice(..wanted as usize);
                piece.map_err(|error| RdmaError::from(error).into())
            }
            wanted => Err(PingError::TooLong {
                wanted,
                size: self.size,
            }),
        };
        let flags = SendFlags::SIGNALED;
        while let Some(source) = self.advert(client).await? {
            let (local, remote) = (piece(&source)?, source.remote());
            self.cm
                .with(|cm| cm.post_read(*id, 0, local, flags, remote))?;
            self.sent(client, "RDMA READ").await?;
            if self.pings.get() == 0 {
                first_operation();
            }
            self.go_ahead(client).await?;

            let Some(sink) = self.advert(client).await? else {
                break;
            };
            let (local, remote) = (piece(&sink)?, sink.remote());
            self.cm
                .with(|cm| cm.post_write(*id, 0, local, flags, remote))?;
            self.sent(client, "RDMA WRITE").await?;
            self.go_ahead(client).await?;
            self.pings.set(self.pings.get().wrapping_add(1));
        }
        Ok(())
    }

    /// The client's next advertisement. `None`: it has disconnected.
    async fn advert(&self, client: &Client<'d>) -> Result<Option<Advert>> {
        let received = pin!(self.cm.get_recv_comp(client.id));
        let silent = pin!(self.ended(client, self.silence));
        let completion = match select(received, silent).await {
            Either::Left((completion, _)) => failure(completion)?,
            Either::Right((ended, _)) => match ended? {
                true => return Ok(None),
                false => return Err(PingError::Silent(self.silence)),
            },
        };
        let wc = match completion {
            Ok(wc) => wc,
            // What was posted comes back when the other end disconnects.
            Err(failed) if failed.status == WcStatus::WrFlushErr && self.is_over(client)? => {
                return Ok(None);
            }
            Err(failed) => {
                let what = "receive";
                return Err(ChannelError::Completion { what, failed }.into());
            }
        };
        if wc.byte_len as usize != ADVERT {
            let (found, due) = (wc.byte_len, ADVERT);
            return Err(ChannelError::Length { found, due }.into());
        }
        let mut bytes = [0; ADVERT];
        let copied = client.inbox.copy_out(0, &mut bytes);
        copied.map_err(RdmaError::from)?;
        self.cm
            .with(|cm| cm.post_recv(client.id, 0, client.inbox.slice(..ADVERT)?))?;
        Ok(Some(Advert::from_bytes(bytes)))
    }

    /// Says that the client may go on.
    async fn go_ahead(&self, client: &Client<'d>) -> Result<()> {
        let message = Advert::of(&client.buffer).to_bytes();
        self.cm
            .with(|cm| cm.post_send_inline(client.id, 0, &message, SendFlags::SIGNALED))?;
        self.sent(client, "SEND").await
    }

    /// Waits for the completion of what was posted.
    async fn sent(&self, client: &Client<'d>, what: &'static str) -> Result<()> {
        let failed = {
            let sent = pin!(self.cm.get_send_comp(client.id));
            let late = pin!(self.later(client.task, self.silence));
            match select(sent, late).await {
                Either::Left((completion, _)) => match failure(completion)? {
                    Ok(_) => return Ok(()),
                    Err(failed) => failed,
                },
                Either::Right(_) => return Err(RdmaError::TimedOut.into()),
            }
        };
        // As in `Channel::sent`: the other end may have disconnected, and may be about to say so.
        let over = match failed.status {
            WcStatus::WrFlushErr => self.is_over(client)?,
            WcStatus::RetryExcErr => self.ended(client, DREQ_TIMEOUT).await?,
            _ => false,
        };
        if over {
            return Err(ChannelError::Disconnected { what }.into());
        }
        Err(ChannelError::Completion { what, failed }.into())
    }

    /// Waits until the client disconnects, for so long at most. Whether it has.
    async fn ended(&self, client: &Client<'d>, timeout: Duration) -> Result<bool> {
        let mut late = pin!(self.later(client.task, timeout));
        while !self.is_over(client)? {
            let event = pin!(self.cm.get_id_event(client.id));
            match select(event, late.as_mut()).await {
                Either::Left((event, _)) => drop(event?),
                Either::Right(_) => return self.is_over(client),
            }
        }
        Ok(true)
    }

    fn is_over(&self, client: &Client<'d>) -> Result<bool> {
        let state = self.cm.with(|cm| cm.state(client.id))?;
        Ok(state == IdState::Disconnect)
    }

    async fn later(&self, task: usize, time: Duration) {
        let end = clock::since_boot().saturating_add(time);
        self.timers.until(task, end).await;
    }
}
