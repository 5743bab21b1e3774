//! The curve of a backlog, as a picture.

use std::fmt::Write;

use serde_json::Value;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BETWEEN: f64 = 45.0;
/// What is drawn: its title, its column among the samples, what a unit of it is.
const PANELS: [(&str, usize, f64); 3] =
    [("bytes that wait, GB", 1, 1e9), ("released, MB/s", 2, 1e6), ("age of the oldest, s", 3, 1.0)];

/// Both cases beside each other; the time for which the destination was away is grey.
pub fn drawn(result: &Value) -> String {
    let cases = result["cases"].as_array().expect("cases");
    let wide = LEFT + cases.len() as f64 * (WIDTH + LEFT);
    let high = TOP + PANELS.len() as f64 * (HEIGHT + BETWEEN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, case) in cases.iter().enumerate() {
        let left = LEFT + number as f64 * (WIDTH + LEFT);
        let title = format!("from a {}; grey: the destination is away", case["from"].as_str().unwrap_or_default());
        writeln!(svg, "<text x=\"{left}\" y=\"20\" font-size=\"14\">{title}</text>").expect("a string");
        for (panel, what) in PANELS.iter().enumerate() {
            draw(&mut svg, case, *what, left, TOP + panel as f64 * (HEIGHT + BETWEEN));
        }
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, case: &Value, (title, column, unit): (&str, usize, f64), left: f64, top: f64) {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let samples = case["samples"].as_array().expect("samples");
    let seconds = samples.last().map_or(1.0, |last| number(&last[0]));
    let most = samples.iter().map(|sample| number(&sample[column]) / unit).fold(0.0, f64::max).max(1e-9);
    let (x, y) = (|at: f64| left + at / seconds * WIDTH, |value: f64| top + HEIGHT * (1.0 - value / most));
    let (away, back) = (x(number(&case["away"][0])), x(number(&case["away"][1])));
    let points: Vec<String> = samples
        .iter()
        .map(|sample| format!("{:.1},{:.1}", x(number(&sample[0])), y(number(&sample[column]) / unit)))
        .collect();
    let (bottom, right) = (top + HEIGHT, left + WIDTH);
    let text = format!(
        "<rect x=\"{away:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{HEIGHT}\" fill=\"#dddddd\"/>\n\
         <path d=\"M{left},{top} V{bottom} H{right}\" fill=\"none\" stroke=\"black\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"1.5\"/>\n\
         <text x=\"{left}\" y=\"{}\">{title}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{seconds:.0} s</text>\n",
        back - away,
        points.join(" "),
        top - 6.0,
        left - 6.0,
        top + 10.0,
        if most < 10.0 { format!("{most:.1}") } else { format!("{most:.0}") },
        left - 6.0,
        bottom + 16.0,
    );
    svg.push_str(&text);
}
