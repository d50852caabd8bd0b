//! Draws the cache hits as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::case::Case;
use super::numbers::show_count;
use super::results::{Results, Role};

const SIZE: (u32, u32) = (1100, 540);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
];
const LIMIT: RGBColor = RGBColor(90, 90, 90);
const CORE: RGBColor = RGBColor(190, 190, 190);

/// A group on the horizontal axis: a request form and a number of destinations.
fn places(results: &Results) -> Vec<(Case, u32)> {
    let mut places: Vec<(Case, u32)> = Vec::new();
    for cell in &results.cells {
        let place = (cell.case, cell.destinations);
        if cell.figures.contains_key("hit") && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Draws a group of bars for each case and size, one per contestant, with the limit as a line across each group.
///
/// # Errors
/// If there is nothing to draw.
pub fn draw(results: &Results) -> Result<String, String> {
    let mut picture = String::new();
    draw_into(results, &mut picture).map_err(|error| error.to_string())?;
    Ok(picture)
}

fn draw_into(results: &Results, picture: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let places = places(results);
    if places.is_empty() {
        return Err("no hits were measured: there is nothing to draw".into());
    }
    let hit = |place: (Case, u32), contestant: &str| {
        let cell = results
            .cells
            .iter()
            .find(|cell| (cell.case, cell.destinations) == place && cell.contestant == contestant);
        cell.and_then(|cell| cell.figures.get("hit"))
    };
    let all = results
        .cells
        .iter()
        .filter_map(|cell| cell.figures.get("hit"));
    let (least, most) = all.fold((f64::MAX, 1.0_f64), |(least, most), hit| {
        (least.min(hit.least), most.max(hit.most))
    });
    let range = (least / 1.5).max(1.0)..most * 2.0;

    let root = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = "A request that the cache answers, including the answer: median of the rounds, and range from fastest to slowest";
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..places.len() as f64, range.clone().log_scale())?;
    let label = |x: &f64| {
        // The labels are in the middle of the groups.
        let index = x.floor() as usize;
        match places.get(index) {
            Some((case, count)) if (x - x.floor() - 0.5).abs() < 0.01 => {
                format!("{} {}", case.name(), show_count(*count))
            }
            _ => String::new(),
        }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc("form of the request, and destinations in the cache")
        .y_desc("nanoseconds, logarithmic; less is better")
        .y_label_formatter(&|ns| format!("{ns:.0}"))
        .draw()?;
    let style = ("sans-serif", 11)
        .into_font()
        .color(&BLACK)
        .pos(Pos::new(HPos::Center, VPos::Top));
    for index in 0..places.len() {
        let x = index as f64 + 0.5;
        let (px, py) = chart.backend_coord(&(x, range.start));
        root.draw(&Text::new(label(&x), (px, py + 6), style.clone()))?;
    }

    let bars: Vec<_> = results
        .contestants
        .iter()
        .filter(|contestant| contestant.role != Role::Limit)
        .collect();
    let width = 0.8 / bars.len() as f64;
    let mut colours = COLOURS.iter().cycle();
    for (turn, contestant) in bars.iter().enumerate() {
        let colour = match contestant.role {
            Role::Core => CORE,
            _ => *colours.next().unwrap_or(&BLACK),
        };
        let name = match contestant.role {
            Role::Core => "core (the bench itself)",
            _ => contestant.name.as_str(),
        };
        let rectangles = places.iter().enumerate().filter_map(|(index, place)| {
            let hit = hit(*place, &contestant.name)?;
            let left = index as f64 + 0.1 + turn as f64 * width;
            let corners = [(left, range.start), (left + width * 0.92, hit.median)];
            Some(Rectangle::new(corners, colour.filled()))
        });
        chart
            .draw_series(rectangles)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        // From the fastest to the slowest round.
        let whiskers = places.iter().enumerate().filter_map(|(index, place)| {
            let hit = hit(*place, &contestant.name)?;
            let x = index as f64 + 0.1 + (turn as f64 + 0.46) * width;
            Some(PathElement::new(
                vec![(x, hit.least), (x, hit.most)],
                BLACK.stroke_width(1),
            ))
        });
        chart.draw_series(whiskers)?;
    }
    let limit = results
        .contestants
        .iter()
        .find(|contestant| contestant.role == Role::Limit);
    if let Some(limit) = limit {
        let lines = places.iter().enumerate().filter_map(|(index, place)| {
            let hit = hit(*place, &limit.name)?;
            let ends = vec![
                (index as f64 + 0.05, hit.median),
                (index as f64 + 0.95, hit.median),
            ];
            Some(PathElement::new(ends, LIMIT.stroke_width(3)))
        });
        chart
            .draw_series(lines)?
            .label("limit: an array index, no hash, no lock")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 12, y)], LIMIT.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}
