//! Objects of libibverbs, and what is asked of them: verbs.c in Rust.

// UNSAFETY: registers memory of the program.
#![expect(unsafe_code)]

use super::line::{Left, Line, NO_VALUE, number};
use super::objects::{Memory, Missing, NO_ERRNO, Object, Region, Window, done, named};
use super::world::Runner;
use bareverbs_core::qp::{
    MwBind, MwType, PathMigState, QpAttr, QpAttrMask, QpCap, QpInitHandles, QpKind, QpState, Ud,
};
use bareverbs_core::{Access, AhAttr, CqInit, Device, Gid, Mtu, Qpn, SrqAttr, StaticRate};
use bareverbs_in_process::ModelPlatform as P;
use std::fmt::Write;

type Told = Result<String, Missing>;

/// Access flags that C's programs give (IBV_ACCESS_MW_BIND and IBV_ACCESS_HUGETLB), and Rust's need not.
const NOT_NEEDED: u32 = 1 << 4 | 1 << 7;

/// The rights of a number. One of Access's bits is this driver's own.
pub(super) fn access(number: u32) -> Result<Access, Left> {
    Access::from_bits(number & !NOT_NEEDED)
        .filter(|access| !access.contains(Access::REMOTE_INVALIDATE))
        .ok_or("rights that Rust's types do not have")
}

fn kind(line: &Line<'_>) -> Result<QpKind, Left> {
    Ok(match line.number("type", 2)? {
        2 => QpKind::Rc,
        3 => QpKind::Uc,
        4 => QpKind::Ud,
        9 => QpKind::XrcSend,
        10 => QpKind::XrcRecv,
        _ => return Err("a type of queue pairs that this call does not have"),
    })
}

fn number_of(kind: QpKind) -> u32 {
    match kind {
        QpKind::Rc => 2,
        QpKind::Uc => 3,
        QpKind::Ud => 4,
        QpKind::XrcSend => 9,
        QpKind::XrcRecv => 10,
        _ => 0,
    }
}

fn state(number: u32) -> Result<QpState, Left> {
    let mut states = QpState::ALL.into_iter();
    states.find(|state| *state as u32 == number).ok_or(NO_VALUE)
}

/// The sizes that are asked for. A queue pair of C has room for binds of windows, which a program in Rust asks for.
pub(super) fn cap(line: &Line<'_>) -> Result<QpCap, Left> {
    Ok(QpCap {
        max_send_wr: line.number("send_wr", 4)?,
        max_recv_wr: line.number("recv_wr", 4)?,
        max_send_sge: line.number("send_sge", 1)?,
        max_recv_sge: line.number("recv_sge", 1)?,
        max_inline_data: line.number("inline", 0)?,
    })
}

fn sizes(line: &Line<'_>) -> Result<SrqAttr, Left> {
    Ok(SrqAttr {
        max_wr: line.number("wr", 4)?,
        max_sge: line.number("sge", 1)?,
        srq_limit: line.number("limit", 0)?,
    })
}

/// A group's address, as verbs.c makes it.
fn group(line: &Line<'_>) -> Result<Gid, Left> {
    line.without(&["dgid"])?;
    let mut gid = [0; 16];
    gid[0] = line.number("prefix", 0xff)?;
    gid[1] = 0x0e;
    gid[15] = line.number("group", 1)?;
    Ok(Gid(gid))
}

/// Tells about a path from this port. A path of Rust's has a global address always, and no word for that.
pub(super) fn tell_path(device: &Device<'_, P>, told: &mut String, path: &AhAttr) {
    let own = device.gid_table().next();
    let (index, gid) = own.map_or((0, Gid::ZERO), |(index, entry)| (index, entry.gid));
    let named = match path.dgid {
        it if it == gid => "own",
        it if it.is_zero() => {
            *told += " to=none";
            return;
        }
        _ => "another",
    };
    let source = if path.sgid_index == index {
        "own"
    } else {
        "another"
    };
    let label = if path.flow_label == 0 { "0" } else { "some" };
    // Writing to a string cannot fail.
    let _ = write!(
        told,
        " global=? dgid={named} sgid={source} label={label} hops={} class={} dlid={} sl={} bits={} rate={} port={}",
        path.hop_limit,
        path.traffic_class,
        path.dlid,
        path.sl,
        path.src_path_bits,
        path.static_rate.number(),
        path.port_num,
    );
}

impl<'d> Runner<'_, 'd> {
    /// Makes a call of libibverbs; `None` if it is none of those that are here.
    pub(super) fn verbs_call(&mut self, line: &Line<'_>) -> Option<Told> {
        Some(match line.call {
            "memory" => self.memory(line),
            "alloc_pd" => {
                let made = self.device.alloc_pd().map(Object::Pd).map_err(named);
                self.plain(line, made)
            }
            "reg_mr" | "reg_mr_iova" => self.register(line),
            "mr" => self.tell_mr(line),
            "alloc_mw" => self.alloc_mw(line),
            "create_comp_channel" => self.plain(line, Ok(Object::Channel)),
            "create_cq" => self.create_cq(line),
            "resize_cq" => self.resize_cq(line),
            "cq" => self.tell_cq(line),
            "req_notify_cq" => self.arm(line),
            "create_srq" => self.create_srq(line),
            "create_srq_ex" => self.create_srq_ex(line),
            "modify_srq" => self.modify_srq(line),
            "query_srq" => self.query_srq(line),
            "open_xrcd" => self.open_xrcd(line),
            "create_qp" => self.create_qp(line),
            "create_qp_ex" => self.create_qp_ex(line),
            "modify_qp" => self.modify_qp(line),
            "query_qp" => self.query_qp(line),
            "query_cap" => self.query_cap(line),
            "create_ah" => self.create_ah(line),
            "attach_mcast" | "detach_mcast" => self.mcast(line),
            "dealloc_pd" | "dereg_mr" | "dealloc_mw" | "destroy_cq" | "destroy_srq"
            | "destroy_qp" | "destroy_ah" | "close_xrcd" => self.destroy_named(line),
            "destroy_comp_channel" => self.destroy_channel(line),
            _ => return None,
        })
    }

    /// Keeps what a call on the device has made, if it is the runner's own.
    fn plain(&mut self, line: &Line<'_>, made: Result<Object<'d>, &'static str>) -> Told {
        line.without(&["on", "of"])?;
        self.keep(line, made)
    }

    fn memory(&mut self, line: &Line<'_>) -> Told {
        if line.number_at::<u32>(0)? != 3 {
            return Err("memory that may not be written: the caller's promise".into());
        }
        self.keep(line, Ok(Object::Memory(Memory::new())))
    }

    fn register(&mut self, line: &Line<'_>) -> Told {
        let access = access(line.number_at(3)?)?;
        let memory = self.objects.memory(line.at(1)?)?;
        let piece = memory.piece(line.number("at", 0)?, line.number_at(2)?);
        let (region, at) = (piece.ok_or("memory that is not there")?, memory.addr());
        let iova = line.number("iova", at as i64)? as u64;
        let pd = self.objects.pd(line.at(0)?)?;
        // SAFETY: the memory is there until the script's regions are gone (`Objects::clear`), and nothing refers to its bytes
        // while the device may change them: they are copied between calls of the driver, in which alone the device runs.
        let mr = unsafe {
            match line.call {
                "reg_mr" => pd.reg_mr(region, access),
                _ => pd.reg_mr_iova(region, iova, access),
            }
        };
        let made = mr.map_err(named).map(|mr| {
            let at = region.cast::<u8>().as_ptr() as u64;
            Object::Region(Box::new(Region { mr, at }))
        });
        self.keep(line, made)
    }

    fn tell_mr(&mut self, line: &Line<'_>) -> Told {
        let Region { mr, .. } = self.objects.region(line.at(0)?)?;
        let keys = match mr.lkey().0 == mr.rkey().0 {
            true => "rkey",
            false => "another",
        };
        Ok(format!("length={} pd=? lkey={keys}", mr.len()))
    }

    fn alloc_mw(&mut self, line: &Line<'_>) -> Told {
        let kind = match line.number_at(1)? {
            1 => MwType::Type1,
            2 => MwType::Type2,
            _ => return Err(NO_VALUE.into()),
        };
        let mw = self.objects.pd(line.at(0)?)?.alloc_mw(kind);
        let made = mw.map_err(named).map(|mw| {
            let rkey = mw.rkey();
            Object::Window(Window { mw, rkey })
        });
        self.keep(line, made)
    }

    fn create_cq(&mut self, line: &Line<'_>) -> Told {
        line.without(&["on", "of"])?;
        if line.at(2)? != "0" {
            return Err("a vector, which Rust takes modulo their number".into());
        }
        let channel = match line.at(1)? {
            "null" => "none",
            name => self.objects.find(name).map(|_| name)?,
        };
        let cq = self.device.create_cq(CqInit::new(line.number_at(0)?));
        let made = cq.map_err(named);
        self.keep(
            line,
            made.map(|cq| Object::Cq(Box::new(cq), channel.into())),
        )
    }

    fn resize_cq(&mut self, line: &Line<'_>) -> Told {
        let to = line.number_at(1)?;
        Ok(done(self.objects.cq(line.at(0)?)?.resize(to)))
    }

    fn tell_cq(&mut self, line: &Line<'_>) -> Told {
        match self.objects.find(line.at(0)?)? {
            Object::Cq(cq, _) => Ok(format!("cqe={} channel=?", cq.cqe())),
            _ => Err("an object of another kind".into()),
        }
    }

    fn arm(&mut self, line: &Line<'_>) -> Told {
        let solicited = line.number_at::<u32>(1)? != 0;
        self.objects.cq(line.at(0)?)?.arm(solicited);
        Ok("0".into())
    }

    fn destroy_channel(&mut self, line: &Line<'_>) -> Told {
        let name = line.at(0)?;
        let uses =
            |object: &Object<'_>| matches!(object, Object::Cq(_, channel) if channel == name);
        let used = self.objects.iter().any(|(_, object)| uses(object));
        match used {
            true => Err("no channels for completions, which CQs could use".into()),
            false => self.destroy_named(line),
        }
    }

    fn create_srq(&mut self, line: &Line<'_>) -> Told {
        let mut attr = sizes(line)?;
        let srq = self.objects.pd(line.at(0)?)?.create_srq(&mut attr);
        let made = srq.map_err(named);
        self.keep(line, made.map(|srq| Object::Srq(Box::new(srq))))
    }

    fn create_srq_ex(&mut self, line: &Line<'_>) -> Told {
        line.without(&["mask", "on", "of"])?;
        let needed = |name| line.key(name).ok_or("null for an object");
        let mut attr = sizes(line)?;
        let entries = &self.objects.entries;
        let object = |name: &str| {
            let entry = entries.iter().rev().find(|entry| entry.name == name);
            entry
                .and_then(|entry| entry.object.as_ref())
                .ok_or(Missing::Gone)
        };
        let Object::Pd(pd) = object(needed("pd")?)? else {
            return Err(NO_VALUE.into());
        };
        let srq = match line.number("type", 0)? {
            0 => pd.create_srq(&mut attr),
            1 => match (object(needed("xrcd")?)?, object(needed("cq")?)?) {
                (Object::Xrcd(xrcd), Object::Cq(cq, _)) => pd.create_xrc_srq(xrcd, cq, &mut attr),
                _ => return Err(NO_VALUE.into()),
            },
            _ => return Err(NO_VALUE.into()),
        };
        let made = srq.map_err(named);
        self.keep(line, made.map(|srq| Object::Srq(Box::new(srq))))
    }

    fn modify_srq(&mut self, line: &Line<'_>) -> Told {
        if line.number_at::<u32>(1)? != 2 {
            return Err("SRQs have no other size, and no other attributes than a limit".into());
        }
        let limit = line.number("limit", 0)?;
        Ok(done(self.objects.srq(line.at(0)?)?.arm_limit(limit)))
    }

    fn query_srq(&mut self, line: &Line<'_>) -> Told {
        let queried = self.objects.srq(line.at(0)?)?.query();
        let SrqAttr {
            max_wr,
            max_sge,
            srq_limit,
        } = queried.unwrap_or_default();
        let result = done(queried.map(drop));
        Ok(format!(
            "{result} wr={max_wr} sge={max_sge} limit={srq_limit}"
        ))
    }

    fn open_xrcd(&mut self, line: &Line<'_>) -> Told {
        line.without(&["fd", "oflags", "mask"])?;
        let made = self.device.open_xrcd().map(Object::Xrcd).map_err(named);
        self.plain(line, made)
    }

    fn create_qp_ex(&mut self, line: &Line<'_>) -> Told {
        line.without(&["flags", "ops", "mask", "tso", "source", "on", "of"])?;
        self.create_qp(line)
    }

    fn create_qp(&mut self, line: &Line<'_>) -> Told {
        let kind = kind(line)?;
        let asked = cap(line)?;
        let mut handles = Vec::new();
        for word in ["send_cq", "recv_cq"].map(|key| line.key(key).unwrap_or("none")) {
            if word != "none" {
                handles.push(self.objects.cq(word)?.handle());
            }
        }
        let srq = match line.key("srq") {
            Some(name) => Some(self.objects.srq(name)?.handle()),
            None => None,
        };
        let created = if kind == QpKind::XrcRecv {
            let xrcd = self
                .objects
                .xrcd(line.key("xrcd").ok_or("no XRC domain")?)?;
            xrcd.create_qp().map(|qp| (qp.into_dyn(), QpCap::default()))
        } else {
            let mut cap = asked;
            if matches!(kind, QpKind::Rc | QpKind::Uc) {
                cap.max_inline_data = cap.max_inline_data.max(MwBind::SPACE);
            }
            let (send_cq, recv_cq) = match &handles[..] {
                [both] if kind == QpKind::XrcSend => (both.clone(), both.clone()),
                [send, receive] => (send.clone(), receive.clone()),
                _ => return Err("null for a CQ".into()),
            };
            let mut init = QpInitHandles {
                send_cq,
                recv_cq,
                srq,
                cap,
                sq_sig_all: line.number("sig_all", 1)? != 0,
            };
            let name = line.key("pd").map_or_else(|| line.at(0), Ok)?;
            let qp = self
                .objects
                .pd(name)?
                .create_dyn_qp_by_handles(kind, &mut init);
            qp.map(|qp| (qp, init.cap))
        };
        drop(handles);
        let mut less = String::new();
        let made = created.map_err(named).map(|(qp, has)| {
            let sends = asked.max_send_wr > 0 && kind != QpKind::XrcRecv;
            let receives = asked.max_recv_wr > 0
                && !qp.has_srq()
                && !matches!(kind, QpKind::XrcSend | QpKind::XrcRecv);
            let has_less = |pairs: &[(u32, u32)]| pairs.iter().any(|(has, asked)| has < asked);
            if sends
                && has_less(&[
                    (has.max_send_wr, asked.max_send_wr),
                    (has.max_send_sge, asked.max_send_sge),
                    (has.max_inline_data, asked.max_inline_data),
                ])
            {
                less += "sends less: ";
            }
            if receives
                && has_less(&[
                    (has.max_recv_wr, asked.max_recv_wr),
                    (has.max_recv_sge, asked.max_recv_sge),
                ])
            {
                less += "receives less: ";
            }
            Object::Qp(Box::new(qp))
        });
        Ok(less + &self.keep(line, made)?)
    }

    /// The path to this port.
    fn path(&self, line: &Line<'_>) -> Result<AhAttr, Left> {
        line.without(&["no_gid", "dgid", "global", "dlid", "bits", "ah_port"])?;
        let own = self.device.gid_table().next().ok_or("no address")?;
        let rate: u8 = line.number("rate", 0)?;
        Ok(AhAttr {
            dgid: own.1.gid,
            sgid_index: line.number("sgid", own.0)?,
            hop_limit: line.number("hops", 64)?,
            traffic_class: line.number("class", 0)?,
            flow_label: line.number("label", 0)?,
            sl: line.number("sl", 0)?,
            static_rate: StaticRate::from_number(rate).ok_or(NO_VALUE)?,
            dmac: own.1.mac,
            port_num: 1,
            ..AhAttr::default()
        })
    }

    fn modify_qp(&mut self, line: &Line<'_>) -> Told {
        line.without(&["mask"])?;
        let mut attr = QpAttr::DEFAULT;
        let mut mask = QpAttrMask::empty();
        let mut has = |name, bit| {
            let there = line.key(name).is_some();
            mask.set(bit, there);
            there
        };
        macro_rules! numbers {
            ($($name:literal $bit:ident $field:ident)*) => {$(
                if has($name, QpAttrMask::$bit) {
                    attr.$field = line.number($name, 0)?;
                }
            )*};
        }
        numbers! {
            "pkey" PKEY_INDEX pkey_index
            "port" PORT port_num
            "qkey" QKEY qkey
            "rq_psn" RQ_PSN rq_psn
            "sq_psn" SQ_PSN sq_psn
            "dest_rd" MAX_DEST_RD_ATOMIC max_dest_rd_atomic
            "rd" MAX_QP_RD_ATOMIC max_rd_atomic
            "rnr_timer" MIN_RNR_TIMER min_rnr_timer
            "timeout" TIMEOUT timeout
            "retry" RETRY_CNT retry_cnt
            "rnr_retry" RNR_RETRY rnr_retry
        }
        if has("state", QpAttrMask::STATE) {
            attr.qp_state = state(line.number("state", 0)?)?;
        }
        if has("cur", QpAttrMask::CUR_STATE) {
            attr.cur_qp_state = state(line.number("cur", 0)?)?;
        }
        if has("access", QpAttrMask::ACCESS_FLAGS) {
            attr.qp_access_flags = access(line.number("access", 0)?)?;
        }
        if has("mtu", QpAttrMask::PATH_MTU) {
            attr.path_mtu = Mtu::from_number(line.number("mtu", 0)?).ok_or(NO_VALUE)?;
        }
        if has("mig", QpAttrMask::PATH_MIG_STATE) {
            attr.path_mig_state = match line.number("mig", 0)? {
                0 => PathMigState::Migrated,
                1 => PathMigState::Rearm,
                2 => PathMigState::Armed,
                _ => return Err(NO_VALUE.into()),
            };
        }
        has("notify", QpAttrMask::EN_SQD_ASYNC_NOTIFY);
        has("limit", QpAttrMask::RATE_LIMIT);
        if has("dest", QpAttrMask::DEST_QPN) {
            attr.dest_qp_num = self.number_of(line, "dest")?;
        }
        self.objects.pair(line.at(0)?)?;
        if has("av", QpAttrMask::AV) {
            attr.ah_attr = self.path(line)?;
        }
        Ok(done(self.objects.pair(line.at(0)?)?.modify(&attr, mask)))
    }

    /// The number of the queue pair of a key.
    pub(super) fn number_of(&mut self, line: &Line<'_>, key: &str) -> Result<Qpn, Missing> {
        let word = line.key(key).ok_or("no queue pair")?;
        match self.objects.pair(word) {
            Ok(qp) => Ok(qp.qpn()),
            Err(Missing::Gone) => Err(Missing::Gone),
            Err(Missing::Unknown(_)) => {
                let number = u32::try_from(number(word)?).map_err(|_| NO_VALUE)?;
                match number < 1 << 24 {
                    true => Ok(Qpn::from_low_bits(number)),
                    false => Err(NO_VALUE.into()),
                }
            }
        }
    }

    /// The name of the queue pair with a number.
    pub(super) fn pair_named(&self, number: u32) -> &str {
        let mut objects = self.objects.iter();
        let is = |object: &Object<'_>| match object {
            Object::Qp(qp) => qp.qpn().number() == number,
            Object::Id(ident) => number != 0 && ident.qpn == number,
            _ => false,
        };
        let found = objects.find(|(_, object)| is(object)).map(|(name, _)| name);
        found.unwrap_or(if number == 0 { "0" } else { "another" })
    }

    fn query_qp(&mut self, line: &Line<'_>) -> Told {
        let (queried, state, kind, has_srq);
        match self.objects.find(line.at(0)?)? {
            Object::Qp(qp) => {
                queried = qp.query();
                (state, kind, has_srq) = (qp.state(), qp.kind(), qp.has_srq());
            }
            Object::QpOfId(id, datagrams) => {
                let (id, of_udp) = (*id, *datagrams);
                (queried, state, kind, has_srq) = if of_udp {
                    let qp = self.cm.ud_endpoint(id).map_err(|_| "no queue pair")?.qp;
                    (qp.query(), qp.state(), qp.kind(), qp.has_srq())
                } else {
                    let qp = self.cm.endpoint(id).map_err(|_| "no queue pair")?.qp;
                    (qp.query(), qp.state(), qp.kind(), qp.has_srq())
                };
            }
            _ => return Err("an object of another kind".into()),
        }
        let queried = match queried {
            Ok(queried) => queried,
            Err(error) => return Ok(named(error).into()),
        };
        let (state, kind) = (state as u32, number_of(kind));
        let q = &queried.attr;
        let psn = |psn| if line.key("psn").is_some() { 0 } else { psn };
        let mtu = queried.path_mtu.map_or(0, Mtu::number);
        let mut told = String::from("0");
        for (name, value) in [
            ("state", q.qp_state as u32),
            ("cur", q.cur_qp_state as u32),
            ("mtu", mtu.into()),
            ("mig", q.path_mig_state as u32),
            ("access", q.qp_access_flags.bits()),
            ("pkey", q.pkey_index.into()),
            ("rd", q.max_rd_atomic.into()),
            ("dest_rd", q.max_dest_rd_atomic.into()),
            ("rnr_timer", q.min_rnr_timer.into()),
            ("port", q.port_num.into()),
            ("timeout", q.timeout.into()),
            ("retry", q.retry_cnt.into()),
            ("rnr_retry", q.rnr_retry.into()),
            ("draining", queried.sq_draining.into()),
            ("sq_psn", psn(q.sq_psn)),
            ("rq_psn", psn(q.rq_psn)),
            ("qkey", q.qkey),
            ("alt_pkey", q.alt_pkey_index.into()),
            ("alt_port", q.alt_port_num.into()),
            ("alt_timeout", q.alt_timeout.into()),
        ] {
            // Writing to a string cannot fail.
            let _ = write!(told, " {name}={value}");
        }
        let (dest, all) = (
            self.pair_named(q.dest_qp_num.number()),
            u8::from(queried.sq_sig_all),
        );
        // A queue pair says that it has an SRQ, and not of which name; its CQs it does not say.
        let srq = if has_srq { "?" } else { "none" };
        let _ = write!(
            told,
            " dest={dest} qp->state={state} type={kind} sig_all={all} cqs=? srq={srq} av"
        );
        tell_path(self.device, &mut told, &q.ah_attr);
        told += " alt";
        tell_path(self.device, &mut told, &q.alt_ah_attr);
        Ok(told)
    }

    fn query_cap(&mut self, line: &Line<'_>) -> Told {
        let cap = self.objects.pair(line.at(0)?)?.cap();
        Ok(format!(
            "0 send_wr={} recv_wr={} send_sge={} recv_sge={} inline={}",
            cap.max_send_wr,
            cap.max_recv_wr,
            cap.max_send_sge,
            cap.max_recv_sge,
            cap.max_inline_data
        ))
    }

    fn create_ah(&mut self, line: &Line<'_>) -> Told {
        self.objects.pd(line.at(0)?)?;
        let path = self.path(line)?;
        let made = self.device.create_ah(&path);
        self.keep(line, made.map(Object::Ah).map_err(|_| NO_ERRNO))
    }

    fn mcast(&mut self, line: &Line<'_>) -> Told {
        line.without(&["lid"])?;
        let group = group(line)?;
        let qp = self.objects.pair(line.at(0)?)?;
        let qp = qp
            .as_qp_mut::<Ud>()
            .ok_or("groups are for UD alone, by type")?;
        Ok(done(match line.call {
            "attach_mcast" => qp.attach_mcast(group),
            _ => qp.detach_mcast(group),
        }))
    }
}
