//! Tables as Markdown, JSON and a picture.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use serde_json::{json, Value};

use crate::table::{Goal, Table};

/// Where and when.
fn place_and_time() -> String {
    let first = |program: &str, args: &[&str]| {
        let out = Command::new(program).args(args).output().ok();
        let text = out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let day = first("date", &["-u", "+%F"]);
    let kernel = first("uname", &["-r"]);
    format!("{day}, kernel {kernel}, {cores} cores")
}

fn verdict(table: &Table, goal: &Goal) -> (String, bool) {
    match table.reached(goal) {
        Some(figure) if figure <= goal.most => (format!("{figure:.2}"), true),
        Some(figure) => (format!("{figure:.2}"), false),
        None => ("not measured".to_owned(), false),
    }
}

/// A table and its goals.
pub fn markdown(table: &Table) -> String {
    // Writing to a String cannot fail.
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\n### {}\n\n{}. {}.\n",
        table.name,
        table.title,
        place_and_time()
    );
    let titles: Vec<&str> = table.columns.iter().map(|column| column.title).collect();
    let _ = writeln!(out, "| | {} |", titles.join(" | "));
    let _ = writeln!(out, "| --- |{}", " ---: |".repeat(titles.len()));
    for contender in &table.contenders {
        let cells = table.columns.iter().map(|column| {
            let digits = column.digits;
            match table.summary((contender, column.key)) {
                Some(s) if (s.most - s.least).abs() < 1e-9 => format!("{:.digits$}", s.median),
                Some(s) => format!(
                    "{:.digits$} ({:.digits$}–{:.digits$})",
                    s.median, s.least, s.most
                ),
                None => String::new(),
            }
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "| {contender} | {} |", cells.join(" | "));
    }
    let _ = writeln!(
        out,
        "\n| goal | at most | reached | |\n| --- | ---: | ---: | --- |"
    );
    for goal in &table.goals {
        let (figure, met) = verdict(table, goal);
        let met = if met { "met" } else { "**not met**" };
        let _ = writeln!(
            out,
            "| {} | {:.2} | {figure} | {met} |",
            goal.text, goal.most
        );
    }
    out
}

fn to_json(table: &Table) -> Value {
    let figures = table.contenders.iter().map(|contender| {
        let columns = table.columns.iter().filter_map(|column| {
            let s = table.summary((contender, column.key))?;
            let value = json!({"median": s.median, "min": s.least, "max": s.most});
            Some((column.key.to_owned(), value))
        });
        json!({"name": contender, "figures": columns.collect::<serde_json::Map<_, _>>()})
    });
    let goals = table.goals.iter().map(|goal| {
        let reached = table.reached(goal);
        let met = reached.is_some_and(|figure| figure <= goal.most);
        json!({"goal": goal.text, "at_most": goal.most, "reached": reached, "met": met})
    });
    json!({
        "row": table.name,
        "title": table.title,
        "contenders": figures.collect::<Vec<_>>(),
        "goals": goals.collect::<Vec<_>>(),
    })
}

/// Bars of the first column of each table.
fn picture(tables: &[Table]) -> String {
    const LEFT: f64 = 230.0;
    const WIDTH: f64 = 700.0;
    const LINE: f64 = 20.0;
    let mut body = String::new();
    let mut y = 10.0;
    for table in tables {
        let Some(column) = table.columns.first() else {
            continue;
        };
        y += 26.0;
        let heading = format!("{}: {}", table.name, column.title);
        let _ = writeln!(
            body,
            "<text x=\"10\" y=\"{y}\" font-weight=\"bold\">{heading}</text>"
        );
        let all = table.contenders.iter();
        let all = all.filter_map(|name| Some((name, table.summary((name, column.key))?)));
        let all: Vec<_> = all.collect();
        let most = all
            .iter()
            .map(|(_, s)| s.most)
            .fold(f64::MIN_POSITIVE, f64::max);
        for (name, s) in all {
            y += LINE;
            let scale = |value: f64| value / most * (WIDTH - LEFT - 90.0);
            let colour = if name.contains("toron") {
                "#0072b2"
            } else {
                "#999999"
            };
            let digits = column.digits;
            let _ = writeln!(
                body,
                "<text x=\"{:.0}\" y=\"{y:.0}\" text-anchor=\"end\">{name}</text>\
                 <rect x=\"{LEFT}\" y=\"{:.0}\" width=\"{:.1}\" height=\"13\" fill=\"{colour}\"/>\
                 <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.0}\" y2=\"{:.0}\" stroke=\"#000\"/>\
                 <text x=\"{:.1}\" y=\"{y:.0}\">{:.digits$}</text>",
                LEFT - 8.0,
                y - 11.0,
                scale(s.median),
                LEFT + scale(s.least),
                LEFT + scale(s.most),
                y - 4.5,
                y - 4.5,
                LEFT + scale(s.most) + 6.0,
                s.median,
            );
        }
    }
    let height = y + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// Writes compare.md, compare.json and compare.svg.
pub fn write(dir: &Path, tables: &[Table]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let text: String = tables.iter().map(markdown).collect();
    fs::write(dir.join("compare.md"), text)?;
    let all: Vec<Value> = tables.iter().map(to_json).collect();
    let json = json!({"machine": place_and_time(), "rows": all});
    fs::write(dir.join("compare.json"), format!("{json:#}\n"))?;
    fs::write(dir.join("compare.svg"), picture(tables))
}
