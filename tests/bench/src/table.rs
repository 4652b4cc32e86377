//! Sections as plain text in aligned columns.

use comfy_table::{CellAlignment, Table, presets};

use crate::report::{Figure, Section, Value};

/// Prints the section: its table, then its figures beside their targets.
pub fn print(section: &Section) {
    println!("\n{}\n", section.title);
    if !section.rows.is_empty() {
        print_rows(&section.columns, &section.rows);
        println!();
    }
    print_figures(&section.figures);
}

/// Prints figures beside their targets.
pub fn print_figures(figures: &[Figure]) {
    let rows: Vec<Vec<String>> = figures.iter().map(figure_row).collect();
    if !rows.is_empty() {
        print_rows(&["figure", "measured", "target", ""], &rows);
    }
}

fn figure_row(figure: &Figure) -> Vec<String> {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let value = match figure.value {
        Value::Single(number) => format!("{number:.2}{unit}"),
        Value::Rounds(spread) => format!("{spread:.3}{unit}"),
    };
    let target = format!("≤ {}{unit}", figure.target);
    vec![figure.name.clone(), value, target, figure.verdict()]
}

/// Prints a table whose first column holds names and whose others hold numbers.
fn print_rows(columns: &[&str], rows: &[Vec<String>]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", table.trim_fmt());
}
