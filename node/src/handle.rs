//! A manager that tasks of any thread use, by jobs that are sent to the thread which drives it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::node::{AsyncCm, Node};
use crate::tasks::{DriveError, drive};

type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Job = Box<dyn for<'a, 'c, 's, 'd> FnOnce(&'a AsyncCm<'c, 's, 'd>) -> Running<'a> + Send>;

/// A node's connection manager for tasks of any thread and any executor: `Send`, `Clone` and `'static`, as `tokio::spawn`
/// wants it. [`Node::spawn`] makes it.
///
/// An [`AsyncCm`] belongs to one thread, and borrows the device: neither `tokio::spawn` nor `spawn_local` takes a future that
/// uses it. A `NodeHandle` sends the work to the thread instead: [`run`](Self::run) takes an async closure, runs it there
/// beside all others, and is itself the future of its result.
///
/// The limits: all closures of one node share one thread, so that a closure computes little and never blocks; more
/// processors are used by more devices (VFs, say), each with a node. What a closure borrows from the manager (buffers, queue
/// pairs) stays in it, so that a closure usually serves a connection for its whole life, and channels connect it to the other
/// tasks; ids ([`CmId`](bareverbs_cm::rdma::CmId)) and bytes may leave. A call costs a change of threads in each direction.
///
#[cfg_attr(feature = "model", doc = "```")]
#[cfg_attr(not(feature = "model"), doc = "```no_run")]
/// use bareverbs_node::{DeviceName, Node, Options};
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> bareverbs_node::Result<()> {
///     let mut options = Options::default();
///     options.interrupts = true;
///     let node = Node::open_with(DeviceName::Model, [10, 0, 0, 1], options)?;
///     let (node, closed) = node.spawn().await?;
///     let port = tokio::spawn(async move {
///         node.run(async |cm| cm.device().query_port()).await
///     });
///     println!("{:?}", port.await???.state);
///     // The last handle is gone, and the device is closed.
///     closed.await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct NodeHandle {
    jobs: mpsc::UnboundedSender<Job>,
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHandle").finish_non_exhaustive()
    }
}

/// The node's thread has ended: its device has failed, and the future that [`Node::spawn`] gave has the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node's thread has ended")]
pub struct NodeGone;

impl NodeHandle {
    /// Runs `work` on the node's thread, and waits for its result. If this future is dropped, so is the one of `work`, as
    /// soon as the node's thread notices.
    ///
    /// # Errors
    ///
    /// [`NodeGone`], also when the thread ends before `work` does.
    pub async fn run<T, W>(&self, work: W) -> Result<T, NodeGone>
    where
        T: Send + 'static,
        W: for<'a, 'c, 's, 'd> AsyncFnOnce(&'a AsyncCm<'c, 's, 'd>) -> T + Send + 'static,
    {
        let (mut result, outcome) = oneshot::channel();
        let job: Job = Box::new(|cm| {
            Box::pin(async move {
                tokio::select! {
                    value = work(cm) => {
                        // The caller may have stopped waiting in this moment.
                        let _ = result.send(value);
                    }
                    () = result.closed() => {}
                }
            })
        });
        self.jobs.send(job).map_err(|_| NodeGone)?;
        outcome.await.map_err(|_| NodeGone)
    }
}

impl Node {
    /// Runs the node in a thread of its own, and lends its manager to the tasks of all threads. Returns once the device is up,
    /// with the handle and a future of the end: that comes when all handles and their work are gone, and the device is closed.
    ///
    /// The device has to have interrupts ([`Options::interrupts`](crate::Options::interrupts)).
    ///
    /// # Errors
    ///
    /// The errors of [`Node::run`] and of [`drive`] come from this future or from the one of the end;
    /// [`DriveError::Panicked`] comes if a closure panicked.
    pub async fn spawn(
        self,
    ) -> Result<
        (
            NodeHandle,
            impl Future<Output = Result<(), DriveError>> + Send,
        ),
        DriveError,
    > {
        let (jobs, mut queue) = mpsc::unbounded_channel();
        let (up, is_up) = oneshot::channel();
        let (down, is_down) = oneshot::channel();
        std::thread::spawn(move || {
            let ran = self.run(|cm| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let cm = AsyncCm::new(cm);
                // These two sends fail if the caller has stopped waiting.
                let _ = up.send(());
                runtime.block_on(async {
                    tokio::select! {
                        () = work_off(&cm, &mut queue) => Ok(()),
                        Err(error) = drive(&cm) => Err(error),
                    }
                })
            });
            let _ = down.send(ran);
        });
        let end = async { is_down.await.unwrap_or(Err(DriveError::Panicked)) };
        match is_up.await {
            Ok(()) => Ok((NodeHandle { jobs }, end)),
            // The thread has ended without having been up.
            Err(_) => Err(end.await.err().unwrap_or(DriveError::Panicked)),
        }
    }
}

/// Runs what comes, until no more can come and all of it is done.
async fn work_off(cm: &AsyncCm<'_, '_, '_>, queue: &mut mpsc::UnboundedReceiver<Job>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            job = queue.recv() => match job {
                Some(job) => running.push(job(cm)),
                None => break,
            },
            Some(()) = running.next() => {}
        }
    }
    while running.next().await.is_some() {}
}

#[cfg(all(test, feature = "model"))]
mod tests {
    use super::*;
    use crate::{Address, DeviceName, Error, EthernetSetting, Options};

    fn node(change: impl FnOnce(&mut Options, &mut Address)) -> Node {
        let (mut options, mut address) = (Options::default(), Address::from([10, 0, 0, 1]));
        options.interrupts = true;
        change(&mut options, &mut address);
        Node::open_with(DeviceName::Model, address, options).expect("a model")
    }

    #[tokio::test]
    async fn a_dropped_call_drops_its_work_and_others_go_on() {
        let (node, end) = node(|_, _| {}).spawn().await.unwrap();
        let (held, mut dropped) = oneshot::channel::<()>();
        let (began, has_begun) = oneshot::channel();
        let call = node.run(async move |_| {
            let _held = held;
            began.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        tokio::select! {
            _ = call => unreachable!("it never ends"),
            begun = has_begun => begun.unwrap(),
        }
        assert!((&mut dropped).await.is_err(), "nothing was sent");
        let other = node.clone();
        let id = tokio::spawn(async move {
            let id = async |cm: &AsyncCm<'_, '_, '_>| cm.with(|cm| cm.ids_in_use());
            other.run(id).await
        });
        assert_eq!(id.await.unwrap(), Ok(0));
        drop(node);
        end.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_ends_the_node_and_each_call() {
        let (node, end) = node(|_, _| {}).spawn().await.unwrap();
        let waiting = node.run(async |_| std::future::pending::<()>().await);
        let panics = node.run(async |_| panic!("on purpose"));
        assert_eq!(
            tokio::join!(waiting, panics),
            (Err(NodeGone), Err(NodeGone))
        );
        assert!(matches!(end.await, Err(DriveError::Panicked)));
        assert_eq!(node.run(async |_| ()).await, Err(NodeGone));
    }

    #[tokio::test]
    async fn a_node_that_does_not_come_up_says_why() {
        let tagged = node(|options, address| {
            options.infiniband = true;
            address.vlan = Some(7);
        });
        let failed = tagged
            .spawn()
            .await
            .map(|_| ())
            .expect_err("no VLANs there");
        assert!(matches!(
            failed,
            DriveError::Node(Error::EthernetOnly(EthernetSetting::Vlan))
        ));
        let without_interrupts = node(|options, _| options.interrupts = false);
        let (_node, end) = without_interrupts.spawn().await.unwrap();
        assert!(end.await.unwrap_err().to_string().contains("interrupts"));
    }
}
