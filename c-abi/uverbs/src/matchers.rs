//! Rules by `mlx5_ib`'s own methods (drivers/infiniband/hw/mlx5/fs.c): a matcher has the mask and the priority, and a rule of it the
//! value and where frames go. Rules are for received frames, and look at the outer headers of layers 2 to 4.

use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::{FlowAction, FlowMatch, FlowRuleInit, Tirn};
use libc::c_int;

use crate::abi::matcher::*;
use crate::attrs::{Args, Result};
use crate::flow::{Flow, unruled};
use crate::matcher::{matcher, outer};
use crate::objects::{Context, Object};
use crate::server::Server;

impl Context<'_> {
    /// The destination of frames, by the handle of an object: `get_dests`.
    fn target(&self, args: &Args) -> Result<Option<(u32, u32)>> {
        let (by_qp, by_devx) = (args.has(TO_QP), args.has(TO_DEVX));
        let handle = match (by_qp, by_devx) {
            (true, true) => return Err(libc::EINVAL),
            (false, false) => return Ok(None),
            (true, false) => args.number(TO_QP)? as u32,
            (false, true) => args.number(TO_DEVX)? as u32,
        };
        self.is_there(handle)?;
        let number = match &self.objects[&handle] {
            Object::Raw(raw) if by_qp => raw.numbers()[0],
            Object::Devx(devx) if by_devx => match devx.create {
                Opcode::CreateTir => Some(devx.number),
                Opcode::CreateFlowTable => return Err(libc::EOPNOTSUPP),
                _ => None,
            },
            _ => None,
        };
        Ok(Some((handle, number.ok_or(libc::EINVAL)?)))
    }
}

impl Server<'_, '_, '_> {
    pub(crate) fn create_matcher(&mut self, fd: c_int, args: &Args) -> Result<()> {
        let matcher = matcher(args)?;
        let handle = self.context(fd)?.add(Object::Matcher(matcher));
        args.set_number(HANDLE, handle.into())
    }

    pub(crate) fn destroy_matcher(&mut self, fd: c_int, args: &Args) -> Result<()> {
        let handle = args.number(HANDLE)? as u32;
        let context = self.context(fd)?;
        context.is_there(handle)?;
        let of = |it: &Object<'_>| matches!(it, Object::Flow(flow) if flow.matcher == Some(handle));
        if context.objects.values().any(of) {
            return Err(libc::EBUSY);
        }
        let is = |it: &Object<'_>| matches!(it, Object::Matcher(_));
        context.remove(handle, is).map(drop)
    }

    /// `MLX5_IB_METHOD_CREATE_FLOW`.
    pub(crate) fn create_rule(&mut self, fd: c_int, args: &Args) -> Result<()> {
        let value = args.bytes(VALUE)?;
        let by = args.number(BY)? as u32;
        let context = self.context(fd)?;
        context.is_there(by)?;
        let target = context.target(args)?;
        let flags = args.flags(RULE_FLAGS, DEFAULT_MISS | DROP)?;
        let Some(Object::Matcher(matcher)) = context.objects.get(&by) else {
            return Err(libc::EINVAL);
        };
        let to = target.map(|(_, tirn)| [Tirn::from_low_bits(tirn)]);
        let action = match (&to, flags) {
            (Some(to), 0) => FlowAction::Forward(to),
            (None, DROP) => FlowAction::Drop,
            (None, DEFAULT_MISS) => return Err(libc::EOPNOTSUPP),
            _ => return Err(libc::EINVAL),
        };
        // Actions beside that, and counters.
        if args.buffer_size(ACTIONS) != 0 || args.buffer_size(COUNTERS) != 0 || matcher.is_unknown {
            return Err(libc::EOPNOTSUPP);
        }
        let tag = match args.has(TAG) {
            true => args.number(TAG)? as u32,
            false => 0,
        };
        if tag >> 24 != 0 {
            return Err(libc::EINVAL);
        }
        let init = FlowRuleInit {
            matches: FlowMatch::from_parts(outer(&value), matcher.mask),
            action,
            priority: u8::try_from(matcher.priority).map_err(|_| libc::ENOMEM)?,
            tag,
            counter: None,
        };
        let rules = self.rules()?;
        let rule = rules.borrow_mut().add(&init).map_err(unruled)?;
        let flow = Flow {
            rule: Some(rule),
            rules,
            qp: target.map_or(0, |(handle, _)| handle),
            matcher: Some(by),
        };
        let handle = self.context(fd)?.add(Object::Flow(Box::new(flow)));
        args.set_number(HANDLE, handle.into())
    }

    /// `MLX5_IB_METHOD_DESTROY_FLOW`.
    pub(crate) fn destroy_rule(&mut self, fd: c_int, args: &Args) -> Result<()> {
        let handle = args.number(HANDLE)? as u32;
        let context = self.context(fd)?;
        context.is_there(handle)?;
        let is = |it: &Object<'_>| matches!(it, Object::Flow(_));
        context.remove(handle, is).map(drop)
    }
}
