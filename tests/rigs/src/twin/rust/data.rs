//! Requests, completions and events: data.c in Rust.

use super::line::{Line, NO_VALUE, number};
use super::objects::{Missing, Object, named};
use super::verbs::access;
use super::world::{COMES, Runner};
use bareverbs_core::qp::{
    Connected, Destination, MwBind, MwType, PostError, QpKind, QpType, Rc, Remote, SendData,
    SendFlags, SendOp, SendQueue, SendWr, Uc, Ud, XrcSend,
};
use bareverbs_core::{AsyncEvent, LKey, RKey, Sge, Srqn, Wc, WcFlags, WcOpcode, WcStatus};
use bareverbs_in_process::ModelPlatform as P;
use std::fmt::Write;

type Told = Result<String, Missing>;

/// Milliseconds to wait for what must not come, as in language.c.
const STAYS_AWAY: u64 = 40;

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(bytes.len() as u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add((*byte).into())
    })
}

/// `ibv_wc_status_str`.
fn status_words(status: WcStatus) -> &'static str {
    match status {
        WcStatus::WrFlushErr => "Work Request Flushed Error",
        WcStatus::MwBindErr => "memory management operation error",
        status => status.as_str(),
    }
}

/// `enum ibv_wc_opcode`.
fn opcode(opcode: WcOpcode) -> u32 {
    match opcode {
        WcOpcode::Send | WcOpcode::Unknown => 0,
        WcOpcode::RdmaWrite => 1,
        WcOpcode::RdmaRead => 2,
        WcOpcode::CompSwap => 3,
        WcOpcode::FetchAdd => 4,
        WcOpcode::BindMw => 5,
        WcOpcode::LocalInv => 6,
        WcOpcode::Recv => 128,
        WcOpcode::RecvRdmaWithImm => 129,
    }
}

/// The window's request of a line: to open it, or to close it by its key.
enum Window {
    Bind(MwBind),
    Close(RKey),
}

fn post_window<T: QpType + Connected>(
    queue: &mut SendQueue<'_, P, T>,
    id: u64,
    flags: SendFlags,
    window: &Window,
) -> Result<(), PostError> {
    match window {
        Window::Bind(bind) => queue.batch().bind_mw(id, flags, bind),
        Window::Close(key) => queue.batch().local_inv(id, flags, *key),
    }
}

impl Runner<'_, '_> {
    /// Makes a call on data; `None` if it is none of those that are here.
    pub(super) fn data_call(&mut self, line: &Line<'_>) -> Option<Told> {
        Some(match line.call {
            "post_recv" => self.post_recv(line),
            "post_send" => self.post_send(line),
            "bind_mw" => self.bind_mw(line),
            "poll" => self.poll(line),
            "cq_event" => self.cq_event(line),
            "async" => self.async_event(line, COMES),
            "no_async" => self.async_event(line, STAYS_AWAY),
            "sum" => self.sum(line),
            _ => return None,
        })
    }

    /// The pieces of memory of a request, which are noted for its completion.
    fn pieces(&mut self, line: &Line<'_>, receive: bool) -> Result<Vec<Sge>, Missing> {
        let count: u32 = line.number("sges", 1)?;
        let length: u32 = line.number("len", 8)?;
        let (start, lkey) = match line.key("mr") {
            Some(name) => self
                .objects
                .region(name)
                .map(|it| (it.at, it.mr.lkey().0))?,
            None => (0, 0),
        };
        let middle = if receive { 32 << 10 } else { 0 };
        let at = start.wrapping_add(line.number("at", middle)? as u64);
        let lkey = LKey(lkey.wrapping_add(line.number("lkey", 0)?));
        let id: i64 = line.number("id", 1)?;
        let whole = count as usize * length as usize;
        self.data.insert((receive, id as u8), (at, whole));
        let piece = |index: u32| Sge::new(at + u64::from(index) * u64::from(length), length, lkey);
        Ok((0..count).map(piece).collect())
    }

    /// Posts as often as a line says.
    fn times(line: &Line<'_>, mut post: impl FnMut() -> Result<(), PostError>) -> Told {
        for _ in 0..line.number("times", 1)? {
            if let Err(error) = post() {
                return Ok(format!("{} bad", named(error)));
            }
        }
        Ok("0".into())
    }

    fn post_recv(&mut self, line: &Line<'_>) -> Told {
        let sges = self.pieces(line, true)?;
        let id = line.number::<i64>("id", 1)? as u64;
        let name = line.at(0)?;
        match line.key("srq") {
            Some(_) => {
                let srq = self.objects.srq(name)?;
                Self::times(line, || srq.post(id, &sges))
            }
            None => {
                let queue = self.objects.pair(name)?.recv_queue();
                Self::times(line, || queue.post(id, &sges))
            }
        }
    }

    fn post_send(&mut self, line: &Line<'_>) -> Told {
        line.without(&["iova"])?;
        let sges = self.pieces(line, false)?;
        let id = line.number::<i64>("id", 1)? as u64;
        let bits: u32 = line.number("flags", 0)?;
        let inline = bits & 8 != 0;
        let flags = SendFlags::from_bits(bits & !8).ok_or(NO_VALUE)?;
        let to = line.key("to").or(line.key("mr"));
        let (start, mut rkey) = match to {
            Some(name) => self
                .objects
                .region(name)
                .map(|it| (it.at, it.mr.rkey().0))?,
            None => (0, 0),
        };
        let mut lkey = 0;
        if let Some(name) = to {
            lkey = self.objects.region(name)?.mr.lkey().0;
        }
        rkey = rkey.wrapping_add(line.number("rkey", 0)?);
        let mw = match line.key("mw") {
            Some(name) => Some(
                self.objects
                    .window(name)
                    .map(|it| (it.rkey.0, it.mw.kind()))?,
            ),
            None => None,
        };
        let key = RKey(mw.map_or(rkey, |(key, _)| key));
        let addr = start.wrapping_add(line.number("remote", 32 << 10)? as u64);
        let remote = Remote { addr, rkey: key };
        let atomic = Remote {
            addr,
            rkey: RKey(rkey),
        };
        let imm = line.number::<i64>("imm", 0)? as u32;
        let ah = match line.key("ah") {
            Some(name) => Some(*self.objects.ah(name)?),
            None => None,
        };
        let to = match &ah {
            Some(ah) => Some(Destination {
                ah,
                remote_qpn: self.number_of(
                    line,
                    if line.key("dest").is_some() {
                        "dest"
                    } else {
                        "qpn"
                    },
                )?,
                remote_qkey: line.number("qkey", 0x1111_1111)?,
            }),
            None => None,
        };
        let compare = line.number::<i64>("compare", 0)? as u64;
        let swap = line.number::<i64>("swap", 1)? as u64;
        let op = number(line.key("op").unwrap_or("WR_SEND"))?;
        let srqn = match line.key("srqn") {
            Some(name) => self.objects.srq(name)?.srqn(),
            None => Srqn::from_low_bits(0),
        };
        let qp = self.objects.pair(line.at(0)?)?;
        let kind = qp.kind();
        if (kind == QpKind::Ud) != to.is_some() {
            return Err("an address for a connection, or none for a datagram".into());
        }
        let op = match (op, to) {
            (0, None) => SendOp::Write(remote),
            (1, None) => SendOp::WriteImm(remote, imm),
            (2, None) => SendOp::Send,
            (3, None) => SendOp::SendImm(imm),
            (2, Some(to)) => SendOp::SendTo(to),
            (3, Some(to)) => SendOp::SendToImm(to, imm),
            (4, None) => SendOp::Read(remote),
            (5, None) => SendOp::CompareSwap {
                remote: atomic,
                compare,
                swap,
            },
            (6, None) => SendOp::FetchAdd {
                remote: atomic,
                add: compare,
            },
            (9, None) => SendOp::SendInv(key),
            (7 | 8, None) => {
                let window = match op {
                    7 => Window::Close(key),
                    _ => {
                        let (rkey, kind) = mw.ok_or("null for a window")?;
                        Window::Bind(MwBind {
                            kind,
                            rkey: next(rkey),
                            lkey: LKey(lkey),
                            addr: start,
                            len: line.number::<i64>("size", 64 << 10)? as u64,
                            access: access(line.number("access", 0)?)?,
                        })
                    }
                };
                return self.post_windows(line, id, flags, &window);
            }
            _ => return Err("an operation that Rust's types do not have".into()),
        };
        let bytes: Vec<u8>;
        let data = if inline {
            bytes = sges
                .iter()
                .flat_map(|sge| self.objects.bytes(sge.addr, sge.length as usize))
                .collect();
            let asked: usize = sges.iter().map(|sge| sge.length as usize).sum();
            if bytes.len() < asked {
                return Err("bytes inline that are not there".into());
            }
            SendData::Inline(&bytes)
        } else {
            SendData::Sges(&sges)
        };
        let wr = SendWr {
            wr_id: id,
            op,
            flags,
            data,
        };
        let qp = self.objects.pair(line.at(0)?)?;
        Self::times(line, || match kind {
            QpKind::Rc => qp
                .send_queue::<Rc>()
                .map_or(Ok(()), |queue| queue.post(&wr)),
            QpKind::Uc => qp
                .send_queue::<Uc>()
                .map_or(Ok(()), |queue| queue.post(&wr)),
            QpKind::Ud => qp
                .send_queue::<Ud>()
                .map_or(Ok(()), |queue| queue.post(&wr)),
            _ => qp
                .send_queue::<XrcSend>()
                .map_or(Ok(()), |queue| queue.post_xrc(srqn, &wr)),
        })
    }

    /// Posts a request of a window, which has another key from then on if it is opened.
    fn post_windows(
        &mut self,
        line: &Line<'_>,
        id: u64,
        flags: SendFlags,
        window: &Window,
    ) -> Told {
        let qp = self.objects.pair(line.at(0)?)?;
        let told = Self::times(line, || match qp.kind() {
            QpKind::Rc => qp
                .send_queue::<Rc>()
                .map_or(Ok(()), |queue| post_window(queue, id, flags, window)),
            QpKind::Uc => qp
                .send_queue::<Uc>()
                .map_or(Ok(()), |queue| post_window(queue, id, flags, window)),
            _ => Err(PostError::Unsupported),
        })?;
        if let (Window::Bind(bind), "0", Some(name)) = (window, told.as_str(), line.key("mw")) {
            self.objects.window(name)?.rkey = bind.rkey;
        }
        Ok(told)
    }

    /// `ibv_bind_mw`: the request for a window of type 1.
    fn bind_mw(&mut self, line: &Line<'_>) -> Told {
        let (rkey, kind) = self
            .objects
            .window(line.at(1)?)
            .map(|it| (it.rkey, it.mw.kind()))?;
        if kind == MwType::Type2 {
            return Err("windows of type 2 by ibv_bind_mw, which is for type 1".into());
        }
        let region = self.objects.region(line.at(2)?)?;
        let bind = MwBind {
            kind,
            rkey: next(rkey.0),
            lkey: region.mr.lkey(),
            addr: region.at,
            len: line.number::<i64>("size", 64 << 10)? as u64,
            access: access(line.number("access", 0)?)?,
        };
        let flags = SendFlags::from_bits(line.number("flags", 0)?).ok_or(NO_VALUE)?;
        let id = line.number::<i64>("id", 1)? as u64;
        let told = self.post_windows(line, id, flags, &Window::Bind(bind))?;
        match told.strip_suffix(" bad") {
            Some(told) => Ok(told.into()),
            None => {
                self.objects.window(line.at(1)?)?.rkey = bind.rkey;
                Ok(told)
            }
        }
    }

    fn poll(&mut self, line: &Line<'_>) -> Told {
        let (name, wanted) = (line.at(0)?, line.number_at::<usize>(1)?);
        let patience = line.number("wait", COMES)?;
        self.objects.cq(name)?;
        let mut told = String::new();
        let mut got = 0;
        while got < wanted {
            let found = self.wait(patience, |it| {
                let polled = it.objects.cq(name).ok()?.poll();
                polled
                    .map(|found| found.map(|found| found.to_wc()))
                    .transpose()
            });
            match found {
                None => break,
                Some(Err(error)) => return Ok(told + "-1 " + named(error)),
                Some(Ok(wc)) => {
                    told += if got > 0 { "; " } else { "" };
                    self.tell_wc(&mut told, &wc);
                    got += 1;
                }
            }
        }
        if got < wanted {
            let between = if got > 0 { "; " } else { "" };
            told += &format!("{between}{got} of {wanted} came");
        }
        Ok(told)
    }

    /// Tells about a completion. Those of requests say neither immediate data nor their bytes.
    pub(super) fn tell_wc(&self, told: &mut String, wc: &Wc) {
        let pair = self.pair_named(wc.qp_num.number());
        // Writing to a string cannot fail.
        let _ = write!(told, "{} {pair} {}", wc.wr_id, status_words(wc.status));
        if wc.status != WcStatus::Success {
            return;
        }
        let received = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        let _ = write!(told, " op={} flags={}", opcode(wc.opcode), wc.flags.bits());
        if received || wc.opcode == WcOpcode::RdmaRead {
            let _ = write!(told, " bytes={}", wc.byte_len);
        }
        let grh = wc.flags.contains(WcFlags::GRH);
        if matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RdmaRead)
            && let Some(&(at, length)) = self.data.get(&(received, wc.wr_id as u8))
        {
            let (headers, end) = (if grh { 40 } else { 0 }, length.min(wc.byte_len as usize));
            if at != 0 && end >= headers {
                let bytes = self.objects.bytes(at + headers as u64, end - headers);
                let _ = write!(told, " sum={}", sum(&bytes));
            }
        }
        if received && wc.flags.contains(WcFlags::WITH_IMM) {
            let _ = write!(told, " imm={}", wc.imm_data);
        }
        if received && grh {
            let from = self.pair_named(wc.src_qp.number());
            let _ = write!(told, " from={from} sl={}", wc.sl);
        }
    }

    fn cq_event(&mut self, line: &Line<'_>) -> Told {
        let channel = line.at(0)?;
        self.objects.find(channel)?;
        let patience = line.number("wait", COMES)?;
        let found = self.wait(patience, |it| {
            let mut entries = it.objects.entries.iter_mut();
            entries.find_map(|entry| match &mut entry.object {
                Some(Object::Cq(cq, of)) if of == channel => {
                    cq.take_event().then(|| entry.name.clone())
                }
                _ => None,
            })
        });
        Ok(found.map_or("none".into(), |name| format!("0 {name}")))
    }

    fn async_event(&mut self, line: &Line<'_>, patience: u64) -> Told {
        line.without(&["on", "of"])?;
        let patience = line.number("wait", patience)?;
        let found = self.wait(patience, |it| it.events.pop_front());
        let pair =
            |words, qpn: bareverbs_core::Qpn| format!("{words} {}", self.pair_named(qpn.number()));
        Ok(match found {
            None => "none".into(),
            Some(AsyncEvent::CommunicationEstablished { qpn }) => {
                pair("communication established", qpn)
            }
            Some(AsyncEvent::SqDrained { qpn }) => pair("send queue drained", qpn),
            Some(AsyncEvent::QpFatal { qpn }) => pair("local work queue catastrophic error", qpn),
            Some(AsyncEvent::QpRequestError { qpn }) => {
                pair("invalid request local work queue error", qpn)
            }
            Some(AsyncEvent::QpAccessError { qpn }) => {
                pair("local access violation work queue error", qpn)
            }
            Some(AsyncEvent::QpLastWqeReached { qpn }) => pair("last WQE reached", qpn),
            Some(AsyncEvent::SrqLimitReached { srqn }) => {
                let mut objects = self.objects.iter();
                let is =
                    |object: &Object<'_>| matches!(object, Object::Srq(srq) if srq.srqn() == srqn);
                let name = objects
                    .find(|(_, object)| is(object))
                    .map_or("another", |(name, _)| name);
                format!("SRQ limit reached {name}")
            }
            Some(AsyncEvent::CqError { cqn, .. }) => {
                let mut objects = self.objects.iter();
                let is =
                    |object: &Object<'_>| matches!(object, Object::Cq(cq, _) if cq.cqn() == cqn);
                let name = objects
                    .find(|(_, object)| is(object))
                    .map_or("another", |(name, _)| name);
                format!("CQ error {name}")
            }
            Some(event) => format!("{event:?}"),
        })
    }

    fn sum(&mut self, line: &Line<'_>) -> Told {
        let at = self.objects.memory(line.at(0)?)?.addr() + line.number_at::<u64>(1)?;
        Ok(sum(&self.objects.bytes(at, line.number_at(2)?)).to_string())
    }
}

/// The key that follows a key.
fn next(rkey: u32) -> RKey {
    RKey(rkey & !0xff | rkey.wrapping_add(1) & 0xff)
}
