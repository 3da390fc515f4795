//! Parses a line of tracefs' `trace` file (`Documentation/trace/ftrace.rst`): `COMM-TID [CPU] FLAGS
//! SECONDS.MICROS: EVENT: FIELDS`. A command name may contain anything, so the parser begins at the CPU.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

/// The names of the two probes of `copy_net_ns`.
pub(super) const COPYING: &str = "copying";
pub(super) const COPIED: &str = "copied";

const CLONE_THREAD: u64 = 0x0001_0000;
const CLONE_NEWNET: u64 = 0x4000_0000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since boot, with a precision of a microsecond.
    pub at: u64,
    /// The thread that ran.
    pub task: i32,
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    CgroupMade { hierarchy: u32, path: String },
    CgroupEntered { hierarchy: u32, path: String, task: i32 },
    Exec { file: String },
    Exit,
    Begun { task: i32, is_thread: bool },
    NetnsMade,
}

/// Some facts take two events. The parser remembers the threads between the first and the second.
#[derive(Default)]
pub(super) struct Parser {
    copying: BTreeSet<i32>,
}

impl Parser {
    /// `None` for a line without an event, or with an event that does not matter.
    pub(super) fn record(&mut self, line: &str) -> Result<Option<Record>> {
        if line.starts_with('#') || line.trim().is_empty() {
            return Ok(None);
        }
        let (task, at, text) = head(line).with_context(|| format!("a line of the trace: {line:?}"))?;
        let event = self.event(task, text).with_context(|| format!("an event of the trace: {line:?}"))?;
        Ok(event.map(|event| Record { at, task, event }))
    }

    fn event(&mut self, task: i32, text: &str) -> Result<Option<Event>> {
        if let Some(arguments) = text.strip_prefix("sys_unshare(") {
            let flags = between(arguments, "unshare_flags: ", ")").context("flags")?;
            self.begin(task, u64::from_str_radix(flags.trim_start_matches("0x"), 16)?);
            return Ok(None);
        }
        if let Some(result) = text.strip_prefix("sys_unshare -> ") {
            let made = self.copying.remove(&task) && result == "0x0";
            return Ok(made.then_some(Event::NetnsMade));
        }
        let (name, fields) = text.split_once(": ").context("a name")?;
        let number = |text: Option<&str>| -> Result<i32> { Ok(text.context("a field")?.trim().parse()?) };
        Ok(match name {
            "cgroup_mkdir" => Some(Event::CgroupMade {
                hierarchy: between(fields, "root=", " ").context("root")?.parse()?,
                path: after(fields, " path=").context("path")?.to_owned(),
            }),
            "cgroup_attach_task" => Some(Event::CgroupEntered {
                hierarchy: between(fields, "dst_root=", " ").context("root")?.parse()?,
                path: between(fields, " dst_path=", " pid=").context("path")?.to_owned(),
                task: number(between(fields, " pid=", " "))?,
            }),
            "sched_process_exec" => {
                Some(Event::Exec { file: between(fields, "filename=", " pid=").context("file")?.to_owned() })
            }
            "sched_process_exit" => Some(Event::Exit),
            "task_newtask" => {
                let flags = between(fields, " clone_flags=", " ").context("flags")?;
                let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16)?;
                let task = number(between(fields, "pid=", " "))?;
                Some(Event::Begun { task, is_thread: flags & CLONE_THREAD != 0 })
            }
            COPYING => {
                let flags = after(fields, " flags=0x").context("flags")?;
                self.begin(task, u64::from_str_radix(flags.trim(), 16)?);
                None
            }
            COPIED => self.copying.remove(&task).then_some(Event::NetnsMade),
            _ => None,
        })
    }

    fn begin(&mut self, task: i32, flags: u64) {
        if flags & CLONE_NEWNET != 0 {
            self.copying.insert(task);
        }
    }
}

/// Returns the thread, the time, and the rest of the line.
fn head(line: &str) -> Option<(i32, u64, &str)> {
    let (task, rest) = line.match_indices(" [").find_map(|(at, _)| {
        let (cpu, rest) = line.get(at + 2..)?.split_once("] ")?;
        let (_, task) = line.get(..at)?.trim_end().rsplit_once('-')?;
        let is_cpu = !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit());
        task.parse().ok().filter(|_| is_cpu).map(|task| (task, rest))
    })?;
    // Skips the flags, then reads the time.
    let (_, rest) = rest.trim_start().split_once(' ')?;
    let (time, text) = rest.trim_start().split_once(": ")?;
    let (seconds, micros) = time.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    Some((task, (seconds * 1_000_000 + micros) * 1_000, text))
}

fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_once(name).map(|(_, rest)| rest)
}

fn between<'a>(text: &'a str, name: &str, end: &str) -> Option<&'a str> {
    after(text, name)?.split(end).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(parser: &mut Parser, line: &str) -> Option<Record> {
        parser.record(line).unwrap()
    }

    #[test]
    fn each_kind_of_line_is_parsed() {
        let mut parser = Parser::default();
        let mut event = |line: &str| record(&mut parser, line).map(|record| record.event);
        assert_eq!(event("# tracer: nop"), None);
        assert_eq!(
            event(
                "      containerd-77      [001] .....   12.000345: cgroup_mkdir: root=0 id=77 level=3 path=/kubepods/pod1"
            ),
            Some(Event::CgroupMade { hierarchy: 0, path: "/kubepods/pod1".to_owned() })
        );
        assert_eq!(
            event(
                "           <...>-77      [001] ....    12.000345: cgroup_attach_task: dst_root=4 dst_id=9 dst_level=2 dst_path=/a/b pid=88 comm=runc:[0] x"
            ),
            Some(Event::CgroupEntered { hierarchy: 4, path: "/a/b".to_owned(), task: 88 })
        );
        assert_eq!(
            event(" a [0] b-c-9 [000] ..... 1.000000: sched_process_exec: filename=/bin/a b pid=9 old_pid=9"),
            Some(Event::Exec { file: "/bin/a b".to_owned() })
        );
        assert_eq!(
            event("  x-9 [000] ..... 1.000000: sched_process_exit: comm=x pid=9 prio=120 group_dead=true"),
            Some(Event::Exit)
        );
        let thread =
            "  x-9 [000] ..... 1.000000: task_newtask: pid=10 comm=x y clone_flags=3d0f00 oom_score_adj=0";
        assert_eq!(event(thread), Some(Event::Begun { task: 10, is_thread: true }));
        let process = "  x-9 [000] ..... 1.000000: task_newtask: pid=11 comm=x clone_flags=0 oom_score_adj=0";
        assert_eq!(event(process), Some(Event::Begun { task: 11, is_thread: false }));
    }

    #[test]
    fn thread_and_time_are_read_behind_the_command_name() {
        let mut parser = Parser::default();
        let line = " a [0] b-c-1234 [011] d..2.  4321.000345: sched_process_exit: comm=x pid=9 prio=120";
        let record = record(&mut parser, line).unwrap();
        assert_eq!((record.task, record.at), (1234, 4_321_000_345_000));
        assert!(parser.record("CPU:1 [LOST 12 EVENTS]").is_err());
    }

    #[test]
    fn a_namespace_is_made_if_the_flags_ask_for_one() {
        let mut parser = Parser::default();
        let mut made =
            |text: &str| record(&mut parser, &format!("  x-9 [000] ..... 1.000000: {text}")).is_some();
        assert!(!made("sys_unshare(unshare_flags: 40000000)"));
        assert!(made("sys_unshare -> 0x0"));
        assert!(!made("sys_unshare -> 0x0"));
        assert!(!made("sys_unshare(unshare_flags: 20000)"));
        assert!(!made("sys_unshare -> 0x0"));
        assert!(!made("sys_unshare(unshare_flags: 40000000)"));
        assert!(!made("sys_unshare -> 0xffffffffffffffff"));
        assert!(!made("copying: (copy_net_ns+0x0/0x1b0) flags=0x0"));
        assert!(!made("copied: (create_new_namespaces+0x10b/0x2f0 <- copy_net_ns)"));
        assert!(!made("copying: (copy_net_ns+0x0/0x1b0) flags=0x40000000"));
        assert!(made("copied: (create_new_namespaces+0x10b/0x2f0 <- copy_net_ns)"));
    }
}
