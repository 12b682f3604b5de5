//! The report for a person.

use std::fmt::Write as _;

use super::report::{Report, State};

/// The whole report. Colour is added, never needed.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    checks(report, &mut out);
    table(
        &mut out,
        &["STORAGE", "TYPE", "SHARED", "CONTENT", "NODES"],
        report.storages.iter().map(|fact| {
            vec![
                fact.name.clone(),
                fact.kind.clone(),
                if fact.shared { "yes" } else { "no" }.to_owned(),
                fact.content.join(","),
                fact.nodes.join(","),
            ]
        }),
    );
    table(
        &mut out,
        &["TEMPLATE", "NAME", "TYPE", "NODE"],
        report.templates.iter().map(|fact| {
            let name = fact.name.clone().unwrap_or_default();
            vec![
                fact.vmid.to_string(),
                name,
                fact.kind.clone(),
                fact.node.clone(),
            ]
        }),
    );
    table(
        &mut out,
        &["BRIDGE", "VLANS", "NODES"],
        report.bridges.iter().map(|fact| {
            let vlans = if fact.vlan_aware { "yes" } else { "no" };
            vec![fact.name.clone(), vlans.to_owned(), fact.nodes.join(",")]
        }),
    );
    if !report.commands.is_empty() {
        out.push_str("\nTo grant what is missing, run as root on any node:\n\n");
        for command in &report.commands {
            line(&mut out, format_args!("  {command}"));
        }
    }
    let (failed, warned) = (report.count(State::Fail), report.count(State::Warn));
    line(
        &mut out,
        format_args!(
            "\n{}, {}.",
            plural(failed, "problem"),
            plural(warned, "warning")
        ),
    );
    out
}

fn checks(report: &Report, out: &mut String) {
    let width = report
        .checks
        .iter()
        .map(|check| check.subject.len())
        .max()
        .unwrap_or(0);
    for check in &report.checks {
        let (word, colour) = match check.state {
            State::Ok => ("ok", 32),
            State::Info => ("info", 36),
            State::Warn => ("warn", 33),
            State::Fail => ("FAIL", 31),
        };
        line(
            out,
            format_args!(
                "\x1b[{colour}m{word:<4}\x1b[0m  {:<width$}  {}",
                check.subject, check.text
            ),
        );
        if let Some(fix) = &check.fix {
            line(
                out,
                format_args!("{:indent$}fix: {fix}", "", indent = width + 8),
            );
        }
    }
}

fn table(out: &mut String, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    out.push('\n');
    let head = head
        .iter()
        .map(|&title| title.to_owned())
        .collect::<Vec<_>>();
    let widths: Vec<usize> = (0..head.len())
        .map(|at| {
            std::iter::once(&head)
                .chain(&rows)
                .map(|row| row[at].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in std::iter::once(&head).chain(&rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        line(out, format_args!("{}", cells.join("  ").trim_end()));
    }
}

fn line(out: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    let _ = writeln!(out, "{words}");
}

fn plural(count: usize, noun: &str) -> String {
    match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
