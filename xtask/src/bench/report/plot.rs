//! The results as pictures: time over size, and time over threads, with both axes logarithmic.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

use super::document::{duration, is_own, size};
use super::results::{Cell, Report};

/// A picture that was drawn, and where it belongs.
pub struct Plot {
    pub memory: String,
    pub workload: String,
    pub title: String,
    pub file: String,
}

/// Along which quantity a picture goes.
#[derive(Clone, Copy)]
enum Along {
    Size,
    Threads,
}

type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// Draws what has at least three points, into a folder.
pub fn draw(report: &Report, folder: &Path) -> Result<Vec<Plot>> {
    fs::create_dir_all(folder)?;
    let mut plots = Vec::new();
    let of = |memory: &str, workload: &str, keep: &dyn Fn(&Cell) -> bool| -> Vec<&Cell> {
        let asked = |c: &&Cell| c.question.memory == memory && c.question.workload == workload && keep(c);
        report.cells.iter().filter(asked).collect()
    };
    for (memory, workload, bytes) in [
        ("device", "pairs", Some(64 << 10)),
        ("device", "bursts of 100", Some(64 << 10)),
        ("device", "random", None),
        ("host", "pairs", Some(64 << 10)),
        ("host", "random", None),
    ] {
        let over_size = of(memory, workload, &|cell| cell.question.threads == 1);
        let over_threads = of(memory, workload, &|cell| cell.question.bytes == bytes);
        for (cells, along) in [(over_size, Along::Size), (over_threads, Along::Threads)] {
            if cells.len() < 3 {
                continue;
            }
            let (way, of_what) = match along {
                Along::Size => ("size", "on one thread, over the size".to_owned()),
                Along::Threads => {
                    ("threads", format!("{}, over the threads", bytes.map_or("mixed sizes".into(), size)))
                }
            };
            let title = format!("{memory} memory, {workload}, {of_what}");
            let file = format!("{memory}-{}-{way}.svg", workload.replace(' ', "-"));
            picture(&title, &lines(&cells, along), along, &folder.join(&file))?;
            plots.push(Plot { memory: memory.into(), workload: workload.into(), title, file });
        }
    }
    Ok(plots)
}

/// Each subject's medians.
fn lines<'a>(cells: &[&'a Cell], along: Along) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for cell in cells {
        let x = match along {
            Along::Size => cell.question.bytes.unwrap_or(0) as f64,
            Along::Threads => cell.question.threads as f64,
        };
        for outcome in &cell.results {
            let point = (x, outcome.nanoseconds.median);
            match lines.iter_mut().find(|(subject, _)| *subject == outcome.subject) {
                Some((_, points)) => points.push(point),
                None => lines.push((&outcome.subject, vec![point])),
            }
        }
    }
    for (_, points) in &mut lines {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

const WIDTH: u32 = 960;
const HEIGHT: u32 = 480;
const LEGEND: u32 = 260;

/// Of subjects that are not ours; ours are drawn in the first of these and thicker.
const COLOURS: &[RGBColor] = &[
    RGBColor(214, 39, 40),
    RGBColor(31, 119, 180),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(23, 190, 207),
    RGBColor(188, 189, 34),
    RGBColor(102, 102, 102),
    RGBColor(166, 206, 227),
    RGBColor(178, 223, 138),
    RGBColor(251, 154, 153),
];

fn picture(title: &str, lines: &[Line<'_>], along: Along, file: &Path) -> Result<()> {
    let root = SVGBackend::new(file, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (chart, legend) = root.split_horizontally(WIDTH - LEGEND);
    let mut chart = ChartBuilder::on(&chart)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(72)
        .build_cartesian_2d(
            span(lines, |point| point.0, 1.0).log_scale().base(2.0),
            span(lines, |point| point.1, 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|x| match along {
            Along::Size => size(*x as u64),
            Along::Threads => format!("{x:.0}"),
        })
        .y_label_formatter(&|y| duration(*y))
        .label_style(("sans-serif", 13))
        .draw()?;
    // Ours last, so that they lie above the others.
    let mut order: Vec<(usize, &Line<'_>)> = lines.iter().enumerate().collect();
    order.sort_by_key(|(_, (subject, _))| is_own(subject));
    for (index, (_, points)) in order {
        let style = style(lines, index);
        chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        chart.draw_series(
            points.iter().map(|&point| Circle::new(point, style.stroke_width + 1, style.color.filled())),
        )?;
    }
    // In the order of the lines' right ends, from the slowest down.
    let mut entries: Vec<usize> = (0..lines.len()).collect();
    let last = |index: usize| lines[index].1.last().map_or(0.0, |point| point.1);
    entries.sort_by(|&one, &other| last(other).total_cmp(&last(one)));
    for (place, &index) in (0..).zip(&entries) {
        let y = 50 + 22 * place;
        legend.draw(&PathElement::new([(0, y), (24, y)], style(lines, index)))?;
        legend.draw(&Text::new(lines[index].0, (32, y - 7), ("sans-serif", 14)))?;
    }
    root.present()?;
    Ok(())
}

fn style(lines: &[Line<'_>], index: usize) -> ShapeStyle {
    let own = is_own(lines[index].0);
    if lines[index].0.starts_with("raw C") {
        return BLACK.stroke_width(2);
    }
    // Ours get the first colours, in every picture.
    let before = lines[..index].iter().filter(|(subject, _)| is_own(subject) == own).count();
    let first = if own { 0 } else { 3 };
    COLOURS[(first + before) % COLOURS.len()].stroke_width(if own { 3 } else { 1 })
}

/// From the least to the greatest, and somewhat more.
fn span(lines: &[Line<'_>], of: impl Fn(&(f64, f64)) -> f64, room: f64) -> Range<f64> {
    let values = lines.iter().flat_map(|(_, points)| points).map(of);
    let (least, greatest) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    least / room..greatest * room
}
