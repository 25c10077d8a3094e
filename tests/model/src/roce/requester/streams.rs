//! Streams of an initiator of dynamic connections: a message that fails ends its own stream, whose other messages are
//! flushed in their turn, and the others go on; until so many are in error that the initiator is
//! (`mlx5dv_dci_stream_id_reset(3)`).

use super::super::env::{Env, QpConfig, QpKind, Syndrome};
use super::{Requester, complete};

impl Requester {
    /// The oldest message has failed. Ends it and puts its stream into error; `false`, and nothing done, if the whole
    /// initiator has to be.
    pub(in super::super) fn fail_stream(
        &mut self,
        config: &QpConfig,
        syndrome: Syndrome,
        env: &mut dyn Env,
    ) -> bool {
        let errored = &mut self.initiator.errored;
        let Some(front) = self.messages.front() else {
            return false;
        };
        let Some(stream) = front.work.stream.filter(|_| config.kind == QpKind::Dci) else {
            return false;
        };
        if errored.len() as u32 + 1 >= config.errored_streams {
            return false;
        }
        errored.insert(stream);
        complete(env, &front.work, 0, Err(syndrome));
        self.skip_front();
        self.initiator.connection = None;
        for nth in 0..self.messages.len() {
            if let Some(message) = self.messages.get_mut(nth)
                && message.work.stream == Some(stream)
            {
                message.failed = Some(Syndrome::WorkRequestFlushed);
            }
        }
        self.reload_retries(config);
        true
    }

    /// Ends the stream's error. Returns `true` if it was in error.
    pub(in super::super) fn reset_stream(&mut self, stream: u16) -> bool {
        self.initiator.errored.remove(&stream)
    }
}
