//! Threads that run operations. There are as many as streams have something to run at once, so that a host function
//! may block for as long as it likes; idle ones end.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::stream::StreamId;
use crate::work::Work;
use crate::{config, sim};

/// One operation to run for a stream.
pub struct Task {
    pub stream: StreamId,
    pub work: Work,
}

struct Queue {
    tasks: VecDeque<Task>,
    /// Workers that wait for a task.
    idle: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { tasks: VecDeque::new(), idle: 0 });
static ARRIVED: Condvar = Condvar::new();

/// How long a worker waits for its next task before it ends.
const PATIENCE: Duration = Duration::from_millis(200);
/// What host functions get as their stack.
const STACK: usize = 1 << 20;

/// Hands an operation to a worker.
pub fn run(task: Task) {
    let mut queue = QUEUE.lock();
    queue.tasks.push_back(task);
    if queue.tasks.len() > queue.idle {
        spawn("cudart-sim worker", work);
    } else {
        ARRIVED.notify_one();
    }
}

/// Starts the thread that looks again and again at what streams wait for outside of their order.
pub fn watch() {
    spawn("cudart-sim watcher", || {
        let mut pause = Duration::from_micros(20);
        loop {
            std::thread::sleep(pause);
            match sim::lock().look_outside() {
                // Nothing is left to wait for.
                None => return,
                Some(true) => pause = Duration::from_micros(20),
                Some(false) => pause = (pause * 2).min(Duration::from_micros(500)),
            }
        }
    });
}

fn work() {
    while let Some(task) = next() {
        task.work.run();
        sim::lock().finished(task.stream);
    }
}

fn next() -> Option<Task> {
    let mut queue = QUEUE.lock();
    loop {
        if let Some(task) = queue.tasks.pop_front() {
            return Some(task);
        }
        queue.idle += 1;
        let patience_is_over = ARRIVED.wait_for(&mut queue, PATIENCE).timed_out();
        queue.idle -= 1;
        if patience_is_over && queue.tasks.is_empty() {
            return None;
        }
    }
}

/// A thread that gets no signals: those are for the program's own threads.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: both sets are valid; the mask is put back below.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = std::thread::Builder::new().name(name.into()).stack_size(STACK).spawn(body);
    // SAFETY: the set was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    if let Err(error) = spawned {
        config::fatal(&format!("cannot start a thread: {error}"));
    }
}
