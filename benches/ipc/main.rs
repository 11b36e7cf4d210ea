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
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use cuda_mempool::{Device, HandleTypes, MemPool, Stream};

    const POOL: &str = "CUDA_MEMPOOL_BENCH_POOL";
    const BY_HOST: &str = "CUDA_MEMPOOL_BENCH_BY_HOST";
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: {why}");
            return Ok(());
        }
    };
    let stream = Stream::new(device)?;
    if let Ok(pool) = std::env::var(POOL) {
        // The importer: two sockets are its standard input and output, a third and the pool are inherited.
        let sockets = [std::io::stdin().as_fd().try_clone_to_owned()?, std::io::stdout().as_fd().try_clone_to_owned()?];
        let [session, mut words] = sockets.map(UnixStream::from);
        // SAFETY: the descriptor is inherited for this alone.
        let by_host = unsafe { UnixStream::from_raw_fd(std::env::var(BY_HOST)?.parse()?) };
        bare::importer(&stream, pool.parse()?, &mut words)?;
        session::importer(&stream, session, &mut words)?;
        return ring::importer(&stream, by_host, &mut words);
    }

    let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).release_threshold(u64::MAX).build()?;
    let inherited = pool.export_fd()?;
    let (session, their_session) = UnixStream::pair()?;
    let (by_host, their_by_host) = UnixStream::pair()?;
    for fd in [inherited.as_raw_fd(), their_by_host.as_raw_fd()] {
        // SAFETY: works on an open descriptor.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
    let (mut words, their_words) = UnixStream::pair()?;
    let mut importer = Command::new(std::env::current_exe()?)
        .env(POOL, inherited.as_raw_fd().to_string())
        .env(BY_HOST, their_by_host.as_raw_fd().to_string())
        .stdin(Stdio::from(OwnedFd::from(their_session)))
        .stdout(Stdio::from(OwnedFd::from(their_words)))
        .spawn()?;
    drop((inherited, their_by_host));
    let mut answers = bare::exporter(&stream, &pool, &mut words)?;
    session::exporter(&stream, &pool, session, &mut words, &mut answers)?;
    ring::Ring::new(&stream, &pool)?.by_host(by_host, &mut words, &mut answers)?;
    importer.wait()?;
    // cargo bench adds --bench.
    if let Some(out) = std::env::args().skip(1).find(|argument| argument != "--bench") {
        std::fs::write(out, serde_json::to_string_pretty(&answers.into_report())?)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {}
