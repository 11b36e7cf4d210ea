//! Draws how a pool's memory is used over time as an SVG, behind a block cache and without one.
//!
//! ```sh
//! cargo run --example pool_timeline -- timeline.svg
//! ```
//!
//! The same random allocations are made twice. Without a cache the pool's use follows them; behind a cache it stays up,
//! because what is given back is kept, and memory is asked for only while new sizes come.

use std::fmt::Write;
use std::{env, fs};

use cuda_mempool::{BlockCache, Device, DeviceBuffer, Location, MemPool, Result, Stream};

const STEPS: usize = 400;
const MIB: f64 = (1 << 20) as f64;

/// What a pool had after a step, in bytes.
struct Sample {
    used: u64,
    reserved: u64,
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = env::args().nth(1).unwrap_or_else(|| "pool_timeline.svg".to_owned());
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            println!("There is nothing to draw: {why}");
            return Ok(());
        }
    };
    let stream = Stream::new(device)?;

    let bare = new_pool(device)?;
    let without = record(&bare, |bytes| bare.alloc(&stream, bytes))?;

    let pool = new_pool(device)?;
    let cache = BlockCache::new(&pool, &stream);
    let with = record(&pool, |bytes| cache.alloc(bytes))?;
    let stats = cache.stats();

    fs::write(&path, draw(&[("the pool alone", &without), ("behind a block cache", &with)]))?;
    println!("{path}: {STEPS} steps; the cache had {} hits and {} misses", stats.hits, stats.misses);
    Ok(())
}

fn new_pool(device: Device) -> Result<MemPool> {
    MemPool::builder(Location::Device(device)).release_threshold(u64::MAX).build()
}

/// Allocates up to 4 MiB in most steps while the load rises, and frees in most while it falls.
fn record(pool: &MemPool, alloc: impl Fn(usize) -> Result<DeviceBuffer<u8>>) -> Result<Vec<Sample>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut live = Vec::new();
    let mut samples = Vec::new();
    for step in 0..STEPS {
        let rising = step % 100 < 50;
        if live.is_empty() || random.f32() < if rising { 0.8 } else { 0.25 } {
            live.push(alloc(random.usize(1..=4 << 20))?);
        } else {
            live.swap_remove(random.usize(0..live.len()));
        }
        let usage = pool.usage()?;
        samples.push(Sample { used: usage.used, reserved: usage.reserved });
    }
    Ok(samples)
}

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 200.0;
const MARGIN: f64 = 60.0;

fn draw(charts: &[(&str, &[Sample])]) -> String {
    let most = charts.iter().flat_map(|(_, samples)| samples.iter()).map(|sample| sample.reserved).max();
    let most = most.unwrap_or(0).max(1) as f64;
    let (width, height) = (WIDTH + 2.0 * MARGIN, (HEIGHT + MARGIN) * charts.len() as f64 + MARGIN);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
"#
    );
    for (index, (title, samples)) in charts.iter().enumerate() {
        let top = MARGIN + (HEIGHT + MARGIN) * index as f64;
        let bottom = top + HEIGHT;
        chart(&mut svg, title, samples, most, bottom);
        for (label, y) in [(format!("{:.0} MiB", most / MIB), top), ("0".to_owned(), bottom)] {
            let x = MARGIN - 4.0;
            let _ = writeln!(svg, r#"<text x="{x}" y="{y}" text-anchor="end">{label}</text>"#);
        }
    }
    svg + "</svg>\n"
}

/// Two areas, what is reserved behind what is used, on a line at `bottom`.
fn chart(svg: &mut String, title: &str, samples: &[Sample], most: f64, bottom: f64) {
    let mut area = |colour: &str, value: fn(&Sample) -> u64| {
        let mut points = format!("{MARGIN},{bottom}");
        for (step, sample) in samples.iter().enumerate() {
            let x = MARGIN + WIDTH * step as f64 / (samples.len() - 1) as f64;
            let y = bottom - HEIGHT * value(sample) as f64 / most;
            let _ = write!(points, " {x:.1},{y:.1}");
        }
        let _ = writeln!(svg, r#"<polygon fill="{colour}" points="{points} {},{bottom}"/>"#, MARGIN + WIDTH);
    };
    area("#cfd8dc", |sample| sample.reserved);
    area("#76b900", |sample| sample.used);
    let y = bottom - HEIGHT - 6.0;
    let _ = writeln!(svg, r#"<text x="{MARGIN}" y="{y}">{title}: bytes used (green) of those reserved</text>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<f64> {
        text.split([' ', ',']).map(|number| number.parse().unwrap()).collect()
    }

    #[test]
    fn areas_lie_within_the_drawing_and_touch_what_they_show() {
        let samples = [(0, 50), (50, 50), (25, 100), (0, 100)].map(|(used, reserved)| Sample { used, reserved });
        let svg = draw(&[("first", &samples), ("second", &samples[..2])]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        let areas: Vec<_> =
            svg.split("points=\"").skip(1).map(|rest| numbers(rest.split('"').next().unwrap())).collect();
        assert_eq!(areas.len(), 4, "reserved and used, of each chart");
        for (index, area) in areas.iter().enumerate() {
            let top = MARGIN + (HEIGHT + MARGIN) * (index / 2) as f64;
            for point in area.chunks(2) {
                assert!((MARGIN..=MARGIN + WIDTH).contains(&point[0]) && (top..=top + HEIGHT).contains(&point[1]));
            }
            assert!(area.chunks(2).zip(area.chunks(2).skip(1)).all(|(one, next)| one[0] <= next[0]), "to the right");
            assert_eq!((area[1], area.last()), (top + HEIGHT, Some(&(top + HEIGHT))), "from its line to its line");
        }
        // The highest of all is as high as a chart: 100 bytes reserved, in the first.
        assert_eq!(areas[0][7], MARGIN);
        // 50 bytes used are half of that.
        assert_eq!(areas[1][5], MARGIN + HEIGHT / 2.0);
    }

    #[test]
    fn behind_a_cache_the_pool_stays_in_use() {
        let device = match Device::new(0) {
            Ok(device) => device,
            Err(why) => {
                assert!(env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_none(), "{why}");
                return eprintln!("skipped: {why}");
            }
        };
        let stream = Stream::new(device).unwrap();
        let (bare, pool) = (new_pool(device).unwrap(), new_pool(device).unwrap());
        let without = record(&bare, |bytes| bare.alloc(&stream, bytes)).unwrap();
        let cache = BlockCache::new(&pool, &stream);
        let with = record(&pool, |bytes| cache.alloc(bytes)).unwrap();
        assert_eq!((without.len(), with.len()), (STEPS, STEPS));
        assert!(with.windows(2).all(|pair| pair[0].used <= pair[1].used), "what is given back is kept");
        assert!(without.windows(2).any(|pair| pair[0].used > pair[1].used));
    }
}
