//! The operations of the types whose work requests name their receiver, XRC and DC: those of a connection, with a route.

use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::payload::Payload;
use crate::verbs::qp::queue::send::Batch;
use crate::verbs::qp::queue::wr::{PostError, Remote, SendFlags, SendOp};
use crate::verbs::qp::route::segments::RouteOf;
use crate::verbs::qp::route::service::{Dci, XrcSend};
use bareverbs_firmware_cmds::numbers::RKey;

macro_rules! routed {
    ($($Type:ty),*) => {
        $(
            impl<P: Platform> Batch<'_, '_, P, $Type> {
                /// Send.
                #[inline(always)]
                pub fn send(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    data: impl Payload,
                ) -> Result<(), PostError> {
                    self.operation(wr_id, flags, &SendOp::Send, to, &data)
                }

                /// Send with immediate data.
                #[inline(always)]
                pub fn send_imm(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    imm: u32,
                    data: impl Payload,
                ) -> Result<(), PostError> {
                    self.operation(wr_id, flags, &SendOp::SendImm(imm), to, &data)
                }

                /// Send, and invalidate a remote key of the receiver.
                #[inline(always)]
                pub fn send_inv(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    key: RKey,
                    data: impl Payload,
                ) -> Result<(), PostError> {
                    self.operation(wr_id, flags, &SendOp::SendInv(key), to, &data)
                }

                /// RDMA write, into memory of the receiver's protection domain, as all that follows.
                #[inline(always)]
                pub fn write(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    remote: Remote,
                    data: impl Payload,
                ) -> Result<(), PostError> {
                    self.operation(wr_id, flags, &SendOp::Write(remote), to, &data)
                }

                /// RDMA write with immediate data.
                #[inline(always)]
                pub fn write_imm(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    remote: Remote,
                    imm: u32,
                    data: impl Payload,
                ) -> Result<(), PostError> {
                    self.operation(wr_id, flags, &SendOp::WriteImm(remote, imm), to, &data)
                }

                /// RDMA read, scattered to `sges`.
                #[inline(always)]
                pub fn read(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    remote: Remote,
                    sges: &[Sge],
                ) -> Result<(), PostError> {
                    let op = SendOp::Read(remote);
                    if let [sge] = sges {
                        return self.operation(wr_id, flags, &op, to, sge);
                    }
                    self.operation(wr_id, flags, &op, to, &sges)
                }

                /// Compares 8 bytes with `compare` and, if equal, replaces them by `swap`; their old value goes to `result`.
                #[inline(always)]
                #[expect(clippy::too_many_arguments)]
                pub fn compare_swap(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    remote: Remote,
                    compare: u64,
                    swap: u64,
                    result: Sge,
                ) -> Result<(), PostError> {
                    let op = SendOp::CompareSwap {
                        remote,
                        compare,
                        swap,
                    };
                    self.operation(wr_id, flags, &op, to, &result)
                }

                /// Adds to 8 bytes; their old value goes to `result`.
                #[inline(always)]
                pub fn fetch_add(
                    &mut self,
                    wr_id: u64,
                    flags: SendFlags,
                    to: impl RouteOf<$Type>,
                    remote: Remote,
                    add: u64,
                    result: Sge,
                ) -> Result<(), PostError> {
                    self.operation(wr_id, flags, &SendOp::FetchAdd { remote, add }, to, &result)
                }
            }
        )*
    };
}

routed!(XrcSend, Dci);
