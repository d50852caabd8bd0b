//! Formats the results for a terminal and for a documentation page.

use std::fmt::Write as _;

use super::case::{Case, FIGURES, Figure, is_on_page};
use super::numbers::show_count;
use super::results::{Cell, Results, Role};

/// Range of meaningful ratios; others come from values near zero.
const SHOWN_RATIOS: std::ops::Range<f64> = 0.1..1000.0;

/// A figure of a case and size, with each contestant's value.
struct Row<'a> {
    case: Case,
    destinations: u32,
    figure: &'a Figure,
    cells: Vec<Option<&'a Cell>>,
}

/// Returns all rows with at least one value.
fn rows(results: &Results) -> Vec<Row<'_>> {
    let mut places: Vec<(Case, u32)> = Vec::new();
    for cell in &results.cells {
        if !places.contains(&(cell.case, cell.destinations)) {
            places.push((cell.case, cell.destinations));
        }
    }
    let mut rows = Vec::new();
    for (case, destinations) in places {
        let cells: Vec<Option<&Cell>> = results
            .contestants
            .iter()
            .map(|contestant| {
                results.cells.iter().find(|cell| {
                    (cell.case, cell.destinations) == (case, destinations)
                        && cell.contestant == contestant.name
                })
            })
            .collect();
        for figure in FIGURES {
            let has = |cell: &Option<&Cell>| {
                cell.is_some_and(|cell| cell.figures.contains_key(figure.name))
            };
            if cells.iter().any(has) {
                rows.push(Row {
                    case,
                    destinations,
                    figure,
                    cells: cells.clone(),
                });
            }
        }
    }
    rows
}

/// A figure with its ratio to the reference: `279 (1.5 x)`.
fn value(cell: Option<&Cell>, figure: &Figure, reference: &str) -> String {
    let Some(cell) = cell else { return "-".into() };
    let Some(summary) = cell.figures.get(figure.name) else {
        return "-".into();
    };
    let number = match summary.median {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let mut text = number;
    if summary.is_noisy() {
        text.push('~');
    }
    match cell.ratios.get(figure.name) {
        Some(ratio) if cell.contestant != reference && SHOWN_RATIOS.contains(ratio) => {
            text + &format!(" ({ratio:.1} x)")
        }
        _ => text,
    }
}

/// Formats the results for a terminal.
pub fn text(results: &Results) -> String {
    let mut lines: Vec<Vec<String>> = vec![
        ["case", "dests", "figure", "unit"]
            .into_iter()
            .map(str::to_owned)
            .chain(
                results
                    .contestants
                    .iter()
                    .map(|contestant| contestant.name.clone()),
            )
            .collect(),
    ];
    for row in rows(results) {
        let mut line = vec![
            row.case.name().to_owned(),
            show_count(row.destinations),
            row.figure.name.to_owned(),
            row.figure.unit.to_owned(),
        ];
        let values = row.cells.iter();
        line.extend(values.map(|cell| value(*cell, row.figure, &results.reference)));
        lines.push(line);
    }
    let mut out = aligned(&lines);
    let _ = writeln!(
        out,
        "\nmedians of {} rounds; (n x): how many times less than {}; ~: rounds differ by more than 25 %",
        results.rounds, results.reference
    );
    out += &remarks(results);
    out += &verdict(results);
    out
}

fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(String::len)
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

fn remarks(results: &Results) -> String {
    let mut out = String::new();
    for cell in &results.cells {
        for remark in &cell.remarks {
            let _ = writeln!(
                out,
                "{} {} {}: {remark}",
                cell.contestant,
                cell.case.name(),
                show_count(cell.destinations)
            );
        }
        if cell.wrong > 0 {
            let _ = writeln!(
                out,
                "{} {} {}: {} of {} answers were wrong",
                cell.contestant,
                cell.case.name(),
                show_count(cell.destinations),
                cell.wrong,
                cell.requests
            );
        }
    }
    out
}

fn verdict(results: &Results) -> String {
    let mut out = String::new();
    if !results.optimized {
        out += "built without optimizations: the figures say nothing; build with --release\n";
    }
    match results.noise.verdict.as_slice() {
        [] => out += "the machine was quiet\n",
        reasons => {
            out += "the machine was noisy:\n";
            for reason in reasons {
                let _ = writeln!(out, "  {reason}");
            }
        }
    }
    out
}

/// Formats the results for a page: one table, and how it was made.
pub fn markdown(results: &Results) -> String {
    let mut out = String::new();
    let shown: Vec<&str> = results
        .contestants
        .iter()
        .map(|contestant| contestant.name.as_str())
        .collect();
    let _ = writeln!(
        out,
        "| case | destinations | figure | unit | {} |",
        shown.join(" | ")
    );
    let _ = writeln!(
        out,
        "| --- | --- | --- | --- |{}",
        " --- |".repeat(shown.len())
    );
    let on_page = rows(results)
        .into_iter()
        .filter(|row| is_on_page(row.case, row.figure));
    for row in on_page {
        let values = row.cells.iter();
        let values: Vec<String> = values
            .map(|cell| value(*cell, row.figure, &results.reference))
            .collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            row.case.name(),
            show_count(row.destinations),
            row.figure.name,
            row.figure.unit,
            values.join(" | ")
        );
    }
    let _ = writeln!(
        out,
        "\nMedians of {} rounds on {}, Linux {}, huge pages `{}`. In brackets: how many times less than {}. A `~` marks a figure \
         whose rounds differ by more than 25 %.",
        results.rounds, results.processor, results.kernel, results.huge_pages, results.reference
    );
    let limits = results.cells.iter().filter(|cell| {
        let of = |contestant: &&super::results::Contestant| contestant.name == cell.contestant;
        let contestant = results.contestants.iter().find(of);
        contestant.is_some_and(|contestant| contestant.role != Role::Core)
            && !cell.remarks.is_empty()
    });
    let mut has_title = false;
    for cell in limits {
        if !std::mem::replace(&mut has_title, true) {
            out += "\nWhat is missing, and why:\n\n";
        }
        let _ = writeln!(
            out,
            "- {}, {}, {}: {}",
            cell.contestant,
            cell.case.name(),
            show_count(cell.destinations),
            cell.remarks.join("; ")
        );
    }
    out += "\nThe figures:\n\n";
    let is_shown = |figure: &&Figure| is_on_page(Case::Gid, figure);
    for figure in FIGURES.iter().filter(is_shown) {
        let _ = writeln!(out, "- {}: {}", figure.name, figure.what);
    }
    match results.noise.verdict.as_slice() {
        [] => out += "\nThe machine was quiet.\n",
        reasons => {
            let _ = writeln!(out, "\nThe machine was noisy: {}.", reasons.join("; "));
        }
    }
    out
}
