//! Managers used by tasks: on tokio, a hundred messages of many connections on one thread, and futures that are dropped at
//! any time; by `tokio-test`, when a task is woken and what it finds.

use std::rc::Rc;
use std::time::Duration;

use bareverbs_cm::rdma::*;
use bareverbs_core::{Mtu, WcStatus, cq::CqError};
use bareverbs_in_process::{ModelPlatform, World};
use futures_util::FutureExt;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use crate::keep::keep;
use crate::pair::{PORT, Pair, SECOND, address, qp};
use crate::support::Random;

type Tasks = AsyncCm<'static, 'static, 'static, ModelPlatform, StaticNeighbours<'static>>;

/// Two managers for tasks.
struct Lab {
    world: Rc<World>,
    cms: [&'static Tasks; 2],
    channels: [ChannelId; 2],
}

impl Lab {
    fn new() -> Self {
        Self::of(Pair::new())
    }

    /// On cards whose firmware takes this long for a command.
    fn on_cards(command_time: Duration) -> Self {
        let card = |card| connectx_model::Config {
            command_time,
            ..card
        };
        Self::of(Pair::on_cards(Mtu::B4096, card))
    }

    fn of(pair: Pair) -> Self {
        let Pair {
            world,
            cms,
            channels,
        } = pair;
        let cms = keep(cms).each_mut().map(|cm| &*keep(AsyncCm::new(cm)));
        let world = Rc::new(world);
        Self {
            world,
            cms,
            channels,
        }
    }

    /// Lets everything happen that happens within this time.
    fn pass(&self, time: Duration) {
        let end = self.world.now() + time;
        loop {
            for cm in self.cms {
                let _ = cm.turn();
            }
            if !self.world.step() {
                if self.world.now() >= end {
                    return;
                }
                self.world.advance(Duration::from_micros(100));
            }
        }
    }

    fn settle(&self) {
        self.pass(Duration::from_millis(20));
    }

    /// On tokio, with tasks that drive the managers and the world.
    fn run(&self, work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        LocalSet::new().block_on(&runtime.unwrap(), async {
            let [first, second] = self.cms.map(|cm| {
                let world = self.world.clone();
                let end = world.now() + 100 * SECOND;
                spawn_local(async move {
                    while world.now() < end {
                        cm.turn().unwrap();
                        if !world.step() {
                            world.advance(Duration::from_micros(20));
                        }
                        yield_now().await;
                    }
                })
            });
            tokio::select! {
                () = work => {}
                _ = first => panic!("a task sleeps for ever"),
                _ = second => panic!("a task sleeps for ever"),
            }
        });
    }

    fn listener(&self, backlog: u32) -> CmId {
        self.cms[1].with(|cm| {
            let any = AddrInfo::listen(([0, 0, 0, 0], PORT));
            let id = cm.create_ep(&any, None, Some(&mut qp())).unwrap();
            cm.listen(id, backlog).unwrap();
            id
        })
    }

    /// Nothing is left: no ids beside the listener, no futures.
    fn assert_idle(&self, ids: [usize; 2]) {
        let left = self.cms.map(|cm| cm.with(|cm| cm.ids_in_use()));
        assert_eq!(left, ids);
    }
}

const LEN: usize = 32;
/// A command of a slow card.
const SLOW: Duration = Duration::from_micros(150);

fn message(client: usize, number: usize) -> [u8; LEN] {
    std::array::from_fn(|at| (client * 31 + number * 7 + at) as u8)
}

/// Answers until the other end leaves.
async fn echo(cm: &'static Tasks, id: CmId) -> Result<usize, RdmaError> {
    let buffer = cm.with(|cm| cm.reg_msgs(id, LEN))?;
    let receive = || cm.with(|cm| cm.post_recv(id, 0, buffer.slice(..LEN)?));
    receive()?;
    cm.accept(id, None).await?;
    let mut answered = 0;
    loop {
        tokio::select! {
            received = cm.get_recv_comp(id) => {
                assert_eq!(received?.status, WcStatus::Success);
                cm.with(|cm| cm.post_send(id, 1, buffer.slice(..LEN)?, SendFlags::SIGNALED))?;
                assert_eq!(cm.get_send_comp(id).await?.wr_id, 1);
                answered += 1;
                receive()?;
            }
            event = cm.get_id_event(id) => {
                assert_eq!(event?.event, EventType::Disconnected);
                cm.disconnect(id).await?;
                drop(buffer);
                cm.with(|cm| cm.destroy_ep(id))?;
                return Ok(answered);
            }
        }
    }
}

/// Sends messages, and compares what comes back.
async fn ask(cm: &'static Tasks, client: usize, messages: usize) -> Result<(), RdmaError> {
    let to = AddrInfo::connect(address(1, PORT));
    let id = cm.create_ep(&to, None, Some(&mut qp())).await?;
    let buffer = cm.with(|cm| cm.reg_msgs(id, 2 * LEN))?;
    cm.connect(id, None).await?;
    for number in 0..messages {
        let text = message(client, number);
        buffer.copy_in(0, &text)?;
        cm.with(|cm| {
            cm.post_recv(id, number as u64, buffer.slice(LEN..2 * LEN)?)?;
            cm.post_send(id, 0, buffer.slice(..LEN)?, SendFlags::SIGNALED)
        })?;
        let received = cm.get_recv_comp(id).await?;
        assert_eq!(
            (received.status, received.wr_id),
            (WcStatus::Success, number as u64)
        );
        let mut answer = [0; LEN];
        buffer.copy_out(LEN, &mut answer)?;
        assert_eq!(answer, text);
        assert_eq!(cm.get_send_comp(id).await?.status, WcStatus::Success);
    }
    cm.disconnect(id).await?;
    drop(buffer);
    cm.with(|cm| cm.destroy_ep(id))
}

#[test]
fn many_connections_on_one_thread() {
    many_connections(Lab::new());
}

/// The same where each command takes its time: other tasks go on meanwhile.
#[test]
fn many_connections_on_slow_cards() {
    many_connections(Lab::on_cards(SLOW));
}

fn many_connections(lab: Lab) {
    const CLIENTS: usize = 12;
    let listener = lab.listener(CLIENTS as u32);
    let [ours, theirs] = lab.cms;
    lab.run(async {
        let server = spawn_local(async move {
            let mut connections = Vec::new();
            for _ in 0..CLIENTS {
                let id = theirs.get_request(listener).await.unwrap();
                connections.push(spawn_local(echo(theirs, id)));
            }
            for connection in connections {
                assert_eq!(connection.await.unwrap(), Ok(10));
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| spawn_local(ask(ours, client, 10)))
            .collect();
        for client in clients {
            assert_eq!(client.await.unwrap(), Ok(()));
        }
        server.await.unwrap();
    });
    lab.assert_idle([0, 1]);
}

/// Polls a future some times, and drops it, again and again, until one of them has its result.
async fn impatient<T, F: Future<Output = T>>(random: &mut Random, make: impl Fn() -> F) -> T {
    loop {
        let mut future = Box::pin(make());
        // Long enough for slow cards now and then.
        let patience = [4, 200][random.below(2)];
        for _ in 0..random.next() % patience {
            if let Some(result) = future.as_mut().now_or_never() {
                return result;
            }
            yield_now().await;
        }
        drop(future);
        yield_now().await;
    }
}

#[test]
fn futures_may_be_dropped_at_any_time() {
    for seed in 0..20 {
        let lab = Lab::on_cards(SLOW * u32::from(seed % 2 == 1));
        let listener = lab.listener(4);
        let [ours, theirs] = lab.cms;
        lab.run(async {
            let server = spawn_local(async move {
                let mut random = Random(seed);
                let id = impatient(&mut random, || theirs.get_request(listener))
                    .await
                    .unwrap();
                assert_eq!(echo(theirs, id).await, Ok(8), "seed {seed}");
            });
            let mut random = Random(seed + 1000);
            let to = AddrInfo::connect(address(1, PORT));
            let id = impatient(&mut random, || async {
                ours.create_ep(&to, None, Some(&mut qp())).await
            })
            .await
            .unwrap();
            let buffer = ours.with(|cm| cm.reg_msgs(id, 2 * LEN)).unwrap();
            // What was begun goes on: its outcome is an event of the id.
            assert_eq!(ours.connect(id, None).now_or_never(), None);
            let event = impatient(&mut random, || ours.get_id_event(id)).await;
            assert_eq!(event.unwrap().event, EventType::Established, "seed {seed}");
            for number in 0..8 {
                let text = message(0, number);
                buffer.copy_in(0, &text).unwrap();
                ours.with(|cm| {
                    cm.post_recv(id, number as u64, buffer.slice(LEN..2 * LEN)?)?;
                    cm.post_send(id, 0, buffer.slice(..LEN)?, SendFlags::SIGNALED)
                })
                .unwrap();
                let wc = impatient(&mut random, || ours.get_recv_comp(id)).await;
                assert_eq!(wc.unwrap().wr_id, number as u64, "seed {seed}");
                let mut answer = [0; LEN];
                buffer.copy_out(LEN, &mut answer).unwrap();
                assert_eq!(answer, text, "seed {seed}");
                let wc = impatient(&mut random, || ours.get_send_comp(id)).await;
                assert_eq!(wc.unwrap().wr_id, 0, "seed {seed}");
            }
            impatient(&mut random, || ours.disconnect(id))
                .await
                .unwrap();
            drop(buffer);
            ours.with(|cm| cm.destroy_ep(id)).unwrap();
            server.await.unwrap();
        });
        lab.assert_idle([0, 1]);
    }
}

/// A task is woken when there is something for it, not before, and once.
#[test]
fn each_task_is_woken_for_its_own() {
    let lab = Lab::new();
    let [ours, theirs] = lab.cms;
    let listener = lab.listener(4);
    let mut request = task::spawn(theirs.get_request(listener));
    let mut nothing = task::spawn(theirs.get_cm_event(lab.channels[1]));
    assert_pending!(request.poll());
    assert_pending!(nothing.poll());
    lab.settle();
    assert!(!request.is_woken());

    let to = AddrInfo::connect(address(1, PORT));
    let id = ours
        .with(|cm| cm.create_ep(&to, None, Some(&mut qp())))
        .unwrap();
    let mut connect = task::spawn(ours.connect(id, None));
    assert_pending!(connect.poll());
    lab.settle();
    assert!(request.is_woken() && !connect.is_woken() && !nothing.is_woken());
    let child = assert_ready_ok!(request.poll());
    let mut accept = task::spawn(theirs.accept(child, None));
    assert_pending!(accept.poll());
    lab.settle();
    assert!(accept.is_woken() && connect.is_woken());
    assert_ready_ok!(accept.poll());
    assert_ready_ok!(connect.poll());

    let inbox = theirs.with(|cm| cm.reg_msgs(child, LEN)).unwrap();
    theirs
        .with(|cm| cm.post_recv(child, 3, inbox.slice(..LEN)?))
        .unwrap();
    let mut received = task::spawn(theirs.get_recv_comp(child));
    let mut sent = task::spawn(theirs.get_send_comp(child));
    let mut over = task::spawn(theirs.get_id_event(child));
    assert_pending!(received.poll());
    assert_pending!(sent.poll());
    assert_pending!(over.poll());
    ours.with(|cm| cm.post_send_inline(id, 4, b"hello", SendFlags::SIGNALED))
        .unwrap();
    lab.settle();
    assert!(received.is_woken() && !sent.is_woken() && !over.is_woken());
    assert_eq!(assert_ready_ok!(received.poll()).wr_id, 3);

    let mut disconnect = task::spawn(ours.disconnect(id));
    assert_pending!(disconnect.poll());
    lab.settle();
    assert!(disconnect.is_woken() && over.is_woken() && !nothing.is_woken());
    assert_ready_ok!(disconnect.poll());
    let event = assert_ready_ok!(over.poll());
    assert_eq!(event.event, EventType::Disconnected);

    // What is destroyed wakes those who wait for it.
    drop((inbox, received));
    let mut received = task::spawn(theirs.get_recv_comp(child));
    let mut over = task::spawn(theirs.get_id_event(child));
    assert_pending!(received.poll());
    assert_pending!(over.poll());
    theirs.with(|cm| cm.destroy_ep(child)).unwrap();
    assert!(received.is_woken() && sent.is_woken() && over.is_woken());
    assert_eq!(assert_ready_err!(received.poll()), RdmaError::NoSuchId);
    assert_eq!(assert_ready_err!(sent.poll()), RdmaError::NoSuchId);
    assert_eq!(assert_ready_err!(over.poll()), RdmaError::NoSuchId);
    theirs
        .with(|cm| cm.destroy_event_channel(lab.channels[1]))
        .unwrap();
    assert!(nothing.is_woken());
    assert_eq!(assert_ready_err!(nothing.poll()), RdmaError::NoSuchChannel);
}

/// Two tasks on one channel: each event is taken by one, and neither sleeps while there is one.
#[test]
fn tasks_may_share_a_channel() {
    let lab = Lab::new();
    let [ours, _] = lab.cms;
    let id = ours
        .with(|cm| cm.create_id(Some(lab.channels[0]), 0, PortSpace::Tcp))
        .unwrap();
    let mut first = task::spawn(ours.get_cm_event(lab.channels[0]));
    let mut second = task::spawn(ours.get_cm_event(lab.channels[0]));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    // Its place was taken.
    assert!(first.is_woken());
    let mark = |status| ours.with(|cm| cm.write_cm_event(id, status, 0)).unwrap();
    mark(1);
    assert!(second.is_woken());
    assert_eq!(assert_ready_ok!(first.poll()).status, 1);
    assert_pending!(second.poll());
    let mut third = task::spawn(ours.get_cm_event(lab.channels[0]));
    assert_pending!(third.poll());
    assert!(second.is_woken());
    // The one that was asked last goes: the other looks again.
    assert_pending!(second.poll());
    assert!(third.is_woken());
    drop(second);
    mark(2);
    assert!(third.is_woken());
    assert_eq!(assert_ready_ok!(third.poll()).status, 2);
}

/// The one that drives is woken by calls that need it sooner than the last turn said.
#[test]
fn calls_make_a_turn_due() {
    let lab = Lab::new();
    let [ours, theirs] = lab.cms;
    lab.settle();
    let mut due = task::spawn(ours.due());
    assert_pending!(due.poll());
    // Nothing that needs it.
    ours.with(|cm| cm.ids_in_use());
    assert!(!due.is_woken());
    let listener = lab.listener(1);
    let mut request = task::spawn(theirs.get_request(listener));
    assert_pending!(request.poll());
    let to = AddrInfo::connect(address(1, PORT));
    let id = ours
        .with(|cm| cm.create_ep(&to, None, Some(&mut qp())))
        .unwrap();
    // A QP was created.
    assert!(due.is_woken());
    assert_ready!(due.poll());
    lab.settle();
    let mut due = task::spawn(ours.due());
    assert_pending!(due.poll());
    let before = ours.turn().unwrap().unwrap();
    let mut connect = task::spawn(ours.connect(id, None));
    assert_pending!(connect.poll());
    // The request is repeated before anything else is due.
    let after = ours.with(|cm| cm.next_deadline(cm.now())).unwrap();
    assert_eq!(due.is_woken(), after < before);
    assert!(after < before);
    assert_ready!(due.poll());
    lab.pass(SECOND);
    assert!(request.is_woken());
    drop(connect);
    ours.with(|cm| cm.destroy_ep(id)).unwrap();
}

/// A device that is gone: every task is woken, and ends with an error.
#[test]
fn a_lost_device_ends_every_wait() {
    let lab = Lab::new();
    let [ours, theirs] = lab.cms;
    let listener = lab.listener(1);
    let to = AddrInfo::connect(address(1, PORT));
    let id = ours
        .with(|cm| cm.create_ep(&to, None, Some(&mut qp())))
        .unwrap();
    let mut connect = task::spawn(ours.connect(id, None));
    let mut request = task::spawn(theirs.get_request(listener));
    assert_pending!(connect.poll());
    lab.settle();
    let child = assert_ready_ok!(request.poll());
    let mut accept = task::spawn(theirs.accept(child, None));
    assert_pending!(accept.poll());
    lab.settle();
    assert_ready_ok!(connect.poll());
    assert_ready_ok!(accept.poll());
    let mut received = task::spawn(ours.get_recv_comp(id));
    let mut event = task::spawn(ours.get_id_event(id));
    let mut channel = task::spawn(ours.get_cm_event(lab.channels[0]));
    let other = ours
        .with(|cm| cm.create_id(Some(lab.channels[0]), 0, PortSpace::Tcp))
        .unwrap();
    assert_pending!(received.poll());
    assert_pending!(event.poll());
    assert_pending!(channel.poll());
    lab.world.with_model(0, connectx_model::Model::vanish);
    lab.pass(5 * SECOND);
    assert!(received.is_woken() && event.is_woken() && channel.is_woken());
    let error = assert_ready_err!(received.poll());
    assert!(
        matches!(error, RdmaError::Cq(CqError::Device(_))),
        "{error}"
    );
    let event = assert_ready_ok!(event.poll());
    assert_eq!(event.event, EventType::DeviceRemoval);
    let event = assert_ready_ok!(channel.poll());
    assert_eq!((event.id, event.event), (other, EventType::DeviceRemoval));
}
