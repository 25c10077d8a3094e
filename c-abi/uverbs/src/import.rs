//! A context that a program opens once more, by another descriptor of the same file (`ibv_import_device` on what `dup` returns).

use std::os::fd::{AsRawFd, IntoRawFd};

use libc::c_int;

use crate::abi::{ASYNC_EVENT_FD, CONTEXT_OUT, CORE_SUPPORT, NUM_COMP_VECTORS};
use crate::attrs::{Args, Result};
use crate::commands::VECTORS;
use crate::events::Channel;
use crate::server::Server;

impl Server<'_, '_, '_> {
    /// The descriptor by which the context is known that a descriptor is of.
    pub(crate) fn named(&self, fd: c_int) -> c_int {
        self.copies.get(&fd).copied().unwrap_or(fd)
    }

    /// A descriptor is one more of a context's.
    pub(crate) fn duplicated(&mut self, fd: c_int, copy: c_int) -> Result<()> {
        let fd = self.named(fd);
        self.context(fd)?;
        self.copies.insert(copy, fd);
        Ok(())
    }

    /// A descriptor was closed: with its last one, a context ends.
    pub(crate) fn closed(&mut self, fd: c_int) {
        if self.copies.remove(&fd).is_some() {
            return;
        }
        let mut copies = self.copies.iter().filter(|(_, of)| **of == fd);
        let Some(next) = copies.next().map(|(copy, _)| *copy) else {
            return self.close(fd);
        };
        self.copies.remove(&next);
        for of in self.copies.values_mut().filter(|of| **of == fd) {
            *of = next;
        }
        if let Some(context) = self.contexts.remove(&fd) {
            self.contexts.insert(next, context);
        }
    }

    /// `QUERY_CONTEXT`: what `GET_CONTEXT` answered. Optional rights of regions are not known (`CORE_SUPPORT`).
    pub(crate) fn query_context(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let answer = self.context(fd)?.answer;
        args.output(NUM_COMP_VECTORS, &VECTORS);
        args.output(CORE_SUPPORT, &0_u64);
        args.output(CONTEXT_OUT, &answer);
        Ok(())
    }

    /// `ASYNC_EVENT_ALLOC`: a further channel for asynchronous events. It gets those of the port.
    pub(crate) fn alloc_async_events(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let context = self.context(fd)?;
        let (events, end) = Channel::new()?;
        args.set_number(ASYNC_EVENT_FD, end.as_raw_fd() as u64)?;
        let _ = end.into_raw_fd();
        context.more_events.push(events);
        Ok(())
    }
}
