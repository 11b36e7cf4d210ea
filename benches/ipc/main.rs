//! What sharing memory between two processes costs, beside the bare C calls in the same run.
//!
//! Only the ratios of one run on a GPU mean anything; on the simulated runtime they tell nothing about CUDA. An argument
//! names the JSON file to write for `cargo xtask bench`.

#[cfg(target_os = "linux")]
mod bare;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
#[path = "../report/results.rs"]
mod results;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
#[path = "../report/statistics.rs"]
mod statistics;

#[cfg(target_os = "linux")]
fn main() -> measure::Outcome {
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use cuda_mempool::{Device, HandleTypes, MemPool, Stream};

    const POOL: &str = "CUDA_MEMPOOL_BENCH_POOL";
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: {why}");
            return Ok(());
        }
    };
    let stream = Stream::new(device)?;
    if let Ok(pool) = std::env::var(POOL) {
        // The importer: its sockets are its standard input and output, the pool is inherited.
        let sockets = [std::io::stdin().as_fd().try_clone_to_owned()?, std::io::stdout().as_fd().try_clone_to_owned()?];
        let [session, mut words] = sockets.map(UnixStream::from);
        bare::importer(&stream, pool.parse()?, &mut words)?;
        return session::importer(&stream, session, &mut words);
    }

    let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).release_threshold(u64::MAX).build()?;
    let inherited = pool.export_fd()?;
    // SAFETY: works on an open descriptor.
    unsafe { libc::fcntl(inherited.as_raw_fd(), libc::F_SETFD, 0) };
    let (session, their_session) = UnixStream::pair()?;
    let (mut words, their_words) = UnixStream::pair()?;
    let mut importer = Command::new(std::env::current_exe()?)
        .env(POOL, inherited.as_raw_fd().to_string())
        .stdin(Stdio::from(OwnedFd::from(their_session)))
        .stdout(Stdio::from(OwnedFd::from(their_words)))
        .spawn()?;
    drop(inherited);
    let mut answers = bare::exporter(&stream, &pool, &mut words)?;
    session::exporter(&stream, &pool, session, &mut words, &mut answers)?;
    importer.wait()?;
    // cargo bench adds --bench.
    if let Some(out) = std::env::args().skip(1).find(|argument| argument != "--bench") {
        std::fs::write(out, serde_json::to_string_pretty(&answers.into_report())?)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {}
