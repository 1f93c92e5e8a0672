//! The program's allocator: mimalloc, as memory here is mostly freed on other threads than it was allocated on (messages go from a
//! connection's task to a core to a log). It counts the requests per thread.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) }; }

/// Allocations of the calling thread since it began; 0 for ever unless the program's allocator is [`Counting`].
pub fn of_this_thread() -> u64 {
    ALLOCATIONS.get()
}

/// mimalloc, counting.
pub struct Counting;

// SAFETY: everything is handed to mimalloc as it came; counting touches a number without a destructor only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps GlobalAlloc's contract, which is mimalloc's too.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above; `at` came from here.
        unsafe { MiMalloc.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above; `at` came from here.
        unsafe { MiMalloc.dealloc(at, layout) }
    }
}
