//! Tests with the real libmana and with a stub.

use std::ffi::c_void;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ibverbs_sys::ibv_context;
use libloading::os::unix::Library;

use super::*;

/// How an allocator behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Good,
    Empty,
    Panics,
    TooShort,
    OffPage,
    PanicsAtFree,
}

/// The calls that an allocator got.
#[derive(Clone, Default)]
struct Record {
    /// Buffers in use.
    taken: Arc<AtomicUsize>,
    /// Requested sizes.
    sizes: Arc<Mutex<Vec<usize>>>,
    /// Dropped allocators.
    dropped: Arc<AtomicUsize>,
}

impl Record {
    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn sizes(&self) -> Vec<usize> {
        self.sizes.lock().unwrap().clone()
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct Counting {
    mood: Mood,
    record: Record,
}

impl Counting {
    fn new(mood: Mood) -> (Self, Record) {
        let record = Record::default();
        (
            Self {
                mood,
                record: record.clone(),
            },
            record,
        )
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.record.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Allocator for Counting {
    fn alloc(&self, size: usize) -> Option<Buffer> {
        self.record.sizes.lock().unwrap().push(size);
        let length = match self.mood {
            Mood::Empty => return None,
            Mood::Panics => panic!("no memory for you"),
            Mood::TooShort => size - 1,
            Mood::OffPage => size + 1,
            Mood::Good | Mood::PanicsAtFree => size,
        };
        let whole = Buffer::zeroed(length)?;
        let taken = self.record.taken.clone();
        taken.fetch_add(1, Ordering::Relaxed);
        let off = usize::from(self.mood == Mood::OffPage);
        // SAFETY: within the whole buffer, which the closure keeps.
        let start = unsafe { whole.start().add(off) };
        // SAFETY: as above.
        Some(unsafe {
            Buffer::from_raw(start, length - off, move |_, _| {
                drop(whole);
                taken.fetch_sub(1, Ordering::Relaxed);
            })
        })
    }

    fn free(&self, buffer: Buffer) {
        assert_ne!(self.mood, Mood::PanicsAtFree, "keep it");
        drop(buffer);
    }
}

/// Like a context: the owner may move the shim, while the driver calls its address.
#[test]
fn the_drivers_address_stays_good_when_the_shim_is_moved() {
    let (allocator, record) = Counting::new(Mood::Good);
    let shim = Shim::new(allocator);
    let c = shim.to_c();
    let (alloc, free) = (c.alloc.unwrap(), c.free.unwrap());
    // SAFETY: the data is the shim's, as the driver has it.
    let first = unsafe { alloc(4096, c.data) };
    let slot = parking_lot::Mutex::new(None);
    *slot.lock() = Some(shim);
    // SAFETY: as above, and the memory has the requested length.
    unsafe {
        first.cast::<u8>().write_bytes(0xa5, 4096);
        let second = alloc(8192, c.data);
        free(first, c.data);
        free(second, c.data);
    }
    assert_eq!((record.taken(), record.sizes()), (0, vec![4096, 8192]));
    drop(slot);
    assert_eq!(record.dropped(), 1);
}

const WORD: usize = size_of::<usize>();
const FAKE: usize = 1 << 20;

/// Returns the words that libmana stored in zeroed memory of 1 MiB, with a fake context in the middle.
fn what_the_real_library_stores() -> (Vec<(usize, usize)>, [usize; 3]) {
    let mana = Mana::load().unwrap();
    let mut fake = vec![0u64; FAKE / 8];
    let shim = Shim::new(Counting::new(Mood::Good).0);
    let middle = fake
        .as_mut_ptr()
        .wrapping_byte_add(FAKE / 2)
        .cast::<ibv_context>();
    // SAFETY: libmana may write to the memory around the context; the shim lives longer.
    unsafe { mana.call(middle, "fake", &shim) }.unwrap();
    println!("called {}", loaded_libmana());
    let words = fake.iter().enumerate().filter(|(_, word)| **word != 0);
    let found = words
        .map(|(index, &word)| (index * 8, usize::try_from(word).unwrap()))
        .collect();
    let c = shim.to_c();
    (
        found,
        [
            c.alloc.unwrap() as usize,
            c.free.unwrap() as usize,
            c.data.addr(),
        ],
    )
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn the_real_library_stores_our_three_words_and_nothing_else() {
    let (found, expected) = what_the_real_library_stores();
    assert_eq!(
        found.iter().map(|(_, word)| *word).collect::<Vec<_>>(),
        expected
    );
    let start = found[0].0;
    assert!(start > FAKE / 2, "{start:#x}");
    assert_eq!(
        found.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
        [start, start + WORD, start + 2 * WORD]
    );
}

/// Returns the file of the loaded libmana.
fn loaded_libmana() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libmana.so"));
    let path = line.and_then(|line| line.split_whitespace().last());
    path.unwrap().to_owned()
}

/// Runs this test executable with the libraries of another release.
fn again_with(suite: &str) {
    let executable = std::env::current_exe().unwrap();
    let target = executable.ancestors().nth(3).unwrap();
    let tree = target.join("debian").join(suite);
    let loader = tree.join("usr/lib64/ld-linux-x86-64.so.2");
    assert!(
        loader.is_file(),
        "{} is not there; run: cargo xtask trees",
        loader.display()
    );
    let output = Command::new(loader)
        .arg("--library-path")
        .arg(tree.join("usr/lib/x86_64-linux-gnu"))
        .arg(&executable)
        .args([
            "--nocapture",
            "--exact",
            "mana::tests::the_real_library_stores_our_three_words_and_nothing_else",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{output:?}"
    );
    // Check that it was that release's library.
    assert!(
        text.contains(&format!("called {}/", tree.display())),
        "{text}"
    );
}

#[test]
#[ignore = "needs another release of Debian, unpacked: the daemon tier runs it"]
fn so_does_that_of_rdma_core_56() {
    again_with("trixie");
}

/// 65 or later.
#[test]
#[ignore = "needs another release of Debian, unpacked: the daemon tier runs it"]
fn so_does_that_of_the_latest_rdma_core() {
    again_with("sid");
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn the_real_library_never_gets_a_context_of_another_driver() {
    let mana = Mana::load().unwrap();
    let mut fake = vec![0u64; FAKE / 8];
    let middle = fake
        .as_mut_ptr()
        .wrapping_byte_add(FAKE / 2)
        .cast::<ibv_context>();
    unsafe extern "C" fn foreign(
        _: *mut ibverbs_sys::ibv_qp,
        _: *mut ibverbs_sys::ibv_send_wr,
        _: *mut *mut ibverbs_sys::ibv_send_wr,
    ) -> c_int {
        0
    }
    let (counting, record) = Counting::new(Mood::Good);
    let shim = Shim::new(counting);
    for function in [None, Some(foreign as _)] {
        // SAFETY: the memory is large enough for a context.
        unsafe { (*middle).ops.post_send = function };
        let before = fake.clone();
        // SAFETY: as above; nothing else of the context is used.
        let error = unsafe { mana.install(middle, "mlx5_0", &shim) }.unwrap_err();
        assert!(matches!(error.cause(), Cause::NotMana { .. }), "{error}");
        // The driver, found by its functions.
        let driver = match function {
            None => "driver is an unknown library",
            Some(_) => "/rdma_access-",
        };
        assert!(error.to_string().contains(driver), "{error}");
        assert!(error.to_string().contains("/libmana.so.1"), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("manadv_set_context_attr(mlx5_0): "),
            "{error}"
        );
        assert!(fake == before);
    }
    drop(shim);
    assert_eq!(record.dropped(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn a_library_that_is_missing_or_lacks_the_function_is_named() {
    let error = Mana::load_from("/nonexistent/libmana.so.1").unwrap_err();
    assert!(matches!(error.cause(), Cause::NoLibrary { .. }), "{error}");
    assert!(
        error.to_string().contains("/nonexistent/libmana.so.1")
            && error.to_string().contains("ibverbs-providers")
    );
    let stub = Stub::build("-DTOO_OLD");
    let error = Mana::load_from(&stub.path).unwrap_err();
    let Cause::NoSymbol { symbol, .. } = error.cause() else {
        panic!("{error}")
    };
    assert_eq!(*symbol, OPERATION);
    assert!(error.to_string().contains("44 or later"), "{error}");
}

/// A stub of libmana that creates and destroys queues on demand.
struct Stub {
    path: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Stub {
    fn build(option: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libmana.so.1");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/mana/stub_libmana.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", option, source, "-o"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success(), "cc {source}: {status}");
        Self {
            path,
            _folder: folder,
        }
    }
}

/// A context of the stub, with our allocator.
struct Device {
    context: *mut ibv_context,
    library: Library,
    shim: Arc<Shim>,
    _stub: Stub,
}

impl Device {
    fn new(allocator: impl Allocator) -> Self {
        let stub = Stub::build("-DGOOD");
        let mana = Mana::load_from(&stub.path).unwrap();
        // SAFETY: the library has no constructors.
        let library = unsafe { Library::new(&stub.path) }.unwrap();
        // SAFETY: the type of the function.
        let context = unsafe {
            library
                .get::<unsafe extern "C" fn() -> *mut ibv_context>("stub_context")
                .unwrap()()
        };
        let shim = Shim::new(allocator);
        // SAFETY: the context is alive as long as the library; the shim lives as long.
        unsafe { mana.install(context, "mana_0", &shim) }.unwrap();
        Self {
            context,
            library,
            shim,
            _stub: stub,
        }
    }

    fn make_queue(&self, size: usize) -> *mut c_void {
        type Make = unsafe extern "C" fn(*mut ibv_context, usize) -> *mut c_void;
        // SAFETY: the type of the function; the context is alive.
        unsafe { self.library.get::<Make>("stub_make_queue").unwrap()(self.context, size) }
    }

    fn end_queue(&self, queue: *mut c_void) {
        type End = unsafe extern "C" fn(*mut ibv_context, *mut c_void);
        // SAFETY: the type of the function; the context is alive.
        unsafe { self.library.get::<End>("stub_end_queue").unwrap()(self.context, queue) };
    }
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn queues_live_in_the_allocators_memory_and_give_it_back() {
    let (allocator, record) = Counting::new(Mood::Good);
    let device = Device::new(allocator);
    let queues: Vec<_> = [4096, 8192, 65536]
        .map(|size| device.make_queue(size))
        .into();
    assert!(
        queues
            .iter()
            .all(|queue| !queue.is_null() && queue.addr().is_multiple_of(4096))
    );
    assert_eq!(record.sizes(), [4096, 8192, 65536]);
    assert_eq!(record.taken(), 3);
    queues.into_iter().for_each(|queue| device.end_queue(queue));
    assert_eq!(record.taken(), 0);
    assert_eq!(record.dropped(), 0);
    drop(device.shim);
    assert_eq!(record.dropped(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn a_queue_of_zero_bytes_does_not_call_the_allocator() {
    let (allocator, record) = Counting::new(Mood::Good);
    let device = Device::new(allocator);
    assert!(device.make_queue(0).is_null());
    assert!(record.sizes().is_empty());
    device.end_queue(std::ptr::null_mut());
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn failure_panic_and_memory_that_does_not_do_are_null() {
    for mood in [Mood::Empty, Mood::Panics, Mood::TooShort, Mood::OffPage] {
        let (allocator, record) = Counting::new(mood);
        let device = Device::new(allocator);
        assert!(device.make_queue(4096).is_null(), "{mood:?}");
        assert_eq!(record.sizes().len(), 1);
        // The unsuitable memory was returned.
        assert_eq!(record.taken(), 0, "{mood:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn a_panic_at_free_and_strange_memory_do_no_harm() {
    let (allocator, record) = Counting::new(Mood::PanicsAtFree);
    let device = Device::new(allocator);
    let queue = device.make_queue(4096);
    device.end_queue(queue);
    // The allocator owned the buffer when it panicked, so unwinding freed it.
    assert_eq!(record.taken(), 0);
    let mut strange = 0u64;
    device.end_queue((&raw mut strange).cast());
    device.end_queue(queue);
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn queues_are_made_on_many_threads() {
    let (allocator, record) = Counting::new(Mood::Good);
    let device = Device::new(allocator);
    let data = device.shim.to_c();
    let (alloc, free, shim) = (data.alloc.unwrap(), data.free.unwrap(), data.data.addr());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..200 {
                    let shim = std::ptr::with_exposed_provenance_mut::<c_void>(shim);
                    // SAFETY: the data is the shim's, as the driver has it.
                    let memory = unsafe { alloc(4096, shim) };
                    assert!(NonNull::new(memory).is_some());
                    // SAFETY: as above.
                    unsafe { free(memory, shim) };
                }
            });
        }
    });
    assert_eq!(record.taken(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "loads a library")]
fn the_context_ends_before_its_allocator() {
    use crate::ud::ProtectionDomain;
    use fabric_sim::model::adapter::{Adapter, Identity};

    let identity = Identity {
        name: "sim0".to_owned(),
        ..Identity::default()
    };
    fabric_sim::fabric::install(vec![Adapter::new(identity, vec![])]);
    let context = Arc::new(Context::open_by_name("sim0").unwrap());

    // Not this library's context, so nothing is stored.
    let (allocator, record) = Counting::new(Mood::Good);
    let error = Mana::load()
        .unwrap()
        .set_allocator(&context, allocator)
        .unwrap_err();
    assert!(matches!(error.cause(), Cause::NotMana { .. }), "{error}");
    assert_eq!(record.dropped(), 1);

    let (allocator, record) = Counting::new(Mood::Good);
    *context.mana_allocator().lock() = Some(Shim::new(allocator));
    let (second, _) = Counting::new(Mood::Good);
    let error = Mana::load()
        .unwrap()
        .set_allocator(&context, second)
        .unwrap_err();
    assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    let domain = ProtectionDomain::new(&context).unwrap();
    drop(context);
    assert_eq!(record.dropped(), 0);
    drop(domain);
    assert_eq!(record.dropped(), 1);
}
