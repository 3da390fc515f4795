//! The pages of the program's own file that count as memory of this process.

use std::{ptr, slice};

/// Unmaps the program's code and constants. The kernel keeps the file's pages in its cache, and maps those
/// again that are used. After the start this leaves out what only the start needs, which is more than half of
/// the pages.
///
/// Only segments that the program can never have written are unmapped (`PT_LOAD` without `PF_W`): the others
/// have relocated addresses, which are in no file.
pub(crate) fn unmap_unused() {
    // SAFETY: the callback takes what dl_iterate_phdr(3) gives it, and does not use the third argument.
    unsafe { libc::dl_iterate_phdr(Some(unmap_object), ptr::null_mut()) };
}

/// Handles the first object, which is the program itself. The result ends the iteration.
unsafe extern "C" fn unmap_object(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    _argument: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: dl_iterate_phdr(3) gives a valid object, whose headers are valid as long as the program is
    // loaded.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr, slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    // SAFETY: sysconf(3) takes no pointer.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begin = (base + header.p_vaddr) / page * page;
        let end = (base + header.p_vaddr + header.p_memsz).next_multiple_of(page);
        let (Ok(address), Ok(length)) = (usize::try_from(begin), usize::try_from(end - begin)) else {
            continue;
        };
        // SAFETY: these pages are a private mapping of the program's file that nothing has written, so that
        // what is mapped again is the same. A failure changes nothing.
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut(address), length, libc::MADV_DONTNEED) };
    }
    1
}

#[cfg(test)]
mod tests {
    use super::unmap_unused;
    use crate::source::node::usage::Memory;

    #[test]
    fn what_is_not_used_again_is_no_memory_of_the_process() {
        // Formats numbers and parses JSON, so that some code was used.
        let parsed: serde_json::Value = serde_json::from_str("{\"a\": [1.5, \"b\"]}").expect("JSON");
        let before = Memory::read().expect("/proc").program;
        unmap_unused();
        let after = Memory::read().expect("/proc").program;
        assert!(after < before, "{after} of {before} bytes");
        assert_eq!(parsed.to_string(), "{\"a\":[1.5,\"b\"]}", "code and constants are mapped again");
    }
}
