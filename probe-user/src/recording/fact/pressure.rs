//! What a pod's cgroup counted, as it stands in the file. Times are nanoseconds, whatever the kernel counts in.

use crate::{
    engine::fact,
    recording::{
        id::{CgroupKey, Decimal, Span},
        mirror::mirror,
    },
};

mirror! { struct fact::PressureRead { cgroup: CgroupKey, pressure: Pressure } }

mirror! {
    struct fact::Pressure {
        cpu: Option<CpuUse>,
        memory: Option<MemoryEvents>,
        cpu_stall: Option<Stall>,
        memory_stall: Option<Stall>,
        io_stall: Option<Stall>,
    }
}

mirror! { struct fact::CpuUse { used: Span, throttled: Span, periods: Decimal } }

mirror! { struct fact::MemoryEvents { high: Decimal, max: Decimal, oom: Decimal } }

mirror! { struct fact::Stall { some: Span, full: Span } }
