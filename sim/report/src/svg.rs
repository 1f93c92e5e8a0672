//! A small writer of charts as SVG: lines and points over two axes, linear or logarithmic, with ticks, units and a legend.
//! Colours follow the reader's light or dark scheme; series differ in their marks too.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 450.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 70.0;
const BELOW_AXIS: f64 = 58.0;
const LEGEND_ROW: f64 = 22.0;
/// Width of a letter of the legend, about.
const LETTER: f64 = 7.9;
const TICKS_MAX: f64 = 6.0;
/// From this power of ten on a tick is written as a power.
const POWER_MIN: i32 = 5;

const STYLE: &str = "
svg{color-scheme:light dark;font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:13px}
.paper{fill:#fff}text{fill:#24292f}.soft{fill:#57606a}.grid{stroke:#d8dee4}.axis{stroke:#8c959f}
.title{font-size:16px;font-weight:600}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.dash{stroke-dasharray:7 5}
.c0{stroke:#0072b2;fill:#0072b2}.c1{stroke:#d55e00;fill:#d55e00}.c2{stroke:#00875f;fill:#00875f}.c3{stroke:#b0569a;fill:#b0569a}
.c4{stroke:#a87900;fill:#a87900}.c5{stroke:#4b8fc9;fill:#4b8fc9}.c6{stroke:#6e7781;fill:#6e7781}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}.soft{fill:#9ea7b3}.grid{stroke:#262c36}.axis{stroke:#6e7681}
.c0{stroke:#58b0f0;fill:#58b0f0}.c1{stroke:#ff9248;fill:#ff9248}.c2{stroke:#3fcf8e;fill:#3fcf8e}.c3{stroke:#e39ad0;fill:#e39ad0}
.c4{stroke:#e8b931;fill:#e8b931}.c5{stroke:#9ccdf5;fill:#9ccdf5}.c6{stroke:#a5adb7;fill:#a5adb7}}
.line{fill:none}.hollow{fill:none;stroke-width:2}";
const COLOURS: usize = 7;

/// The scale and the label of an axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// With its unit.
    pub label: String,
    pub log: bool,
    /// How a tick is written.
    pub tick: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// 1,000 or 10⁶.
    Number,
    /// 1,000,000.
    Whole,
    /// 10 kB.
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    Solid,
    Dashed,
    /// Marks alone.
    Marks,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub stroke: Stroke,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// Ticks of the horizontal axis are the values that were measured.
    pub ticks_at_points: bool,
    pub series: Vec<Series>,
}

impl Axis {
    pub fn new(label: &str, log: bool, tick: Tick) -> Axis {
        Axis { label: label.to_owned(), log, tick }
    }
}

/// A point of the drawing, from its upper left corner.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

/// An axis with its ends and where they are drawn.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(axis: &Axis, values: &[f64], from: f64, to: f64, tight: bool) -> Scale {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match (axis.log, tight) {
            (true, true) => (low / 1.35, high * 1.35),
            (true, false) => (10f64.powf((low * 0.85).log10().floor()), 10f64.powf((high * 1.15).log10().ceil())),
            (false, _) => {
                let step = step(high * 1.05);
                (0.0, (high * 1.05 / step).ceil() * step)
            }
        };
        Scale { log: axis.log, low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.log {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let low = self.low.log10().ceil() as i32;
            let high = (self.high.log10() + 1e-9).floor() as i32;
            let stride = ((high - low) / 9 + 1) as usize;
            return (low..=high).step_by(stride).map(|power| 10f64.powi(power)).collect();
        }
        let step = step(self.high);
        (0..).map(|n| f64::from(n) * step).take_while(|&tick| tick <= self.high * 1.000_1).collect()
    }
}

fn point(x: f64, y: f64) -> Point {
    Point { x, y }
}

/// A round distance that gives a few ticks up to `high`.
fn step(high: f64) -> f64 {
    let rough = high.max(1e-9) / TICKS_MAX;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

impl Chart {
    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        let legend = self.legend();
        let rows = legend.last().map_or(0.0, |(_, _, row)| row + 1.0);
        let height = HEIGHT + rows * LEGEND_ROW;
        let bottom = HEIGHT - BELOW_AXIS;
        let values = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            self.series.iter().flat_map(|series| &series.points).map(of).collect()
        };
        let x = Scale::of(&self.x, &values(|p| p.0), LEFT, WIDTH - RIGHT, true);
        let y = Scale::of(&self.y, &values(|p| p.1), bottom, TOP, false);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n",
            escaped(&self.title)
        );
        text(&mut out, point(20.0, 28.0), "title", "start", &self.title);
        self.draw_y(&mut out, &y);
        self.draw_x(&mut out, &x, bottom);
        for (number, series) in self.series.iter().enumerate() {
            series.draw(&mut out, number, &x, &y);
        }
        for (number, left, row) in legend {
            let from = point(left, HEIGHT + row * LEGEND_ROW + 2.0);
            self.series[number].draw_key(&mut out, number, from);
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw_y(&self, out: &mut String, y: &Scale) {
        for tick in y.ticks() {
            let at = y.at(tick);
            line(out, "grid", point(LEFT, at), point(WIDTH - RIGHT, at));
            text(out, point(LEFT - 10.0, at + 4.5), "soft", "end", &self.y.tick.write(tick));
        }
        text(out, point(20.0, TOP - 20.0), "soft", "start", &self.y.label);
    }

    fn draw_x(&self, out: &mut String, x: &Scale, bottom: f64) {
        line(out, "axis", point(LEFT, bottom), point(WIDTH - RIGHT, bottom));
        let ticks = if self.ticks_at_points { self.measured() } else { x.ticks() };
        for tick in ticks {
            let at = x.at(tick);
            line(out, "axis", point(at, bottom), point(at, bottom + 5.0));
            text(out, point(at, bottom + 21.0), "soft", "middle", &self.x.tick.write(tick));
        }
        text(out, point((LEFT + WIDTH - RIGHT) / 2.0, bottom + 43.0), "soft", "middle", &self.x.label);
    }

    /// The values that were measured along the horizontal axis, each once.
    fn measured(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// Where each key stands: the series, from the left, the row.
    fn legend(&self) -> Vec<(usize, f64, f64)> {
        let mut left = LEFT;
        let mut row = 0.0;
        let mut keys = Vec::new();
        for (number, series) in self.series.iter().enumerate() {
            let width = 44.0 + series.name.chars().count() as f64 * LETTER;
            if left + width > WIDTH - RIGHT && left > LEFT {
                (left, row) = (LEFT, row + 1.0);
            }
            keys.push((number, left, row));
            left += width;
        }
        keys
    }
}

impl Series {
    fn draw(&self, out: &mut String, number: usize, x: &Scale, y: &Scale) {
        let points: Vec<Point> = self.points.iter().map(|&(px, py)| point(x.at(px), y.at(py))).collect();
        if self.stroke != Stroke::Marks {
            self.draw_path(out, number, &points);
        }
        if self.stroke != Stroke::Dashed {
            points.iter().for_each(|&at| mark(out, number, at));
        }
    }

    fn draw_path(&self, out: &mut String, number: usize, points: &[Point]) {
        let dash = if self.stroke == Stroke::Dashed { " dash" } else { "" };
        let path: Vec<String> = points.iter().map(|Point { x, y }| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, "<polyline class=\"c{} line{dash}\" points=\"{}\"/>", number % COLOURS, path.join(" "));
    }

    fn draw_key(&self, out: &mut String, number: usize, from: Point) {
        let Point { x, y } = from;
        if self.stroke != Stroke::Marks {
            self.draw_path(out, number, &[from, point(x + 26.0, y)]);
        }
        if self.stroke != Stroke::Dashed {
            mark(out, number, point(x + 13.0, y));
        }
        text(out, point(x + 32.0, y + 4.5), "", "start", &self.name);
    }
}

/// A series' mark: its form tells it apart without its colour.
fn mark(out: &mut String, number: usize, at: Point) {
    let Point { x, y } = at;
    let class = format!("c{}", number % COLOURS);
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<String> = points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon class=\"{class}\" points=\"{}\"/>", points.join(" "))
    };
    let drawn = match number % 4 {
        0 => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.2\"/>"),
        1 => polygon(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
        2 => polygon(&[(0.0, -5.2), (5.0, 4.0), (-5.0, 4.0)]),
        _ => polygon(&[(0.0, -5.6), (5.6, 0.0), (0.0, 5.6), (-5.6, 0.0)]),
    };
    out.push_str(&drawn);
    out.push('\n');
}

fn line(out: &mut String, class: &str, from: Point, to: Point) {
    let Point { x: x1, y: y1 } = from;
    let Point { x: x2, y: y2 } = to;
    let _ = writeln!(out, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

fn text(out: &mut String, at: Point, class: &str, anchor: &str, words: &str) {
    let Point { x, y } = at;
    let words = escaped(words);
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Tick {
    fn write(self, value: f64) -> String {
        match self {
            Tick::Number => number(value),
            Tick::Whole => super::words::grouped(value),
            Tick::Bytes => super::words::bytes(value),
        }
    }
}

/// A round value: powers of ten from a hundred thousand on.
fn number(value: f64) -> String {
    let power = value.log10();
    if value >= 10f64.powi(POWER_MIN) && (power - power.round()).abs() < 1e-9 {
        let digits = format!("{}", power.round() as i32);
        return format!("10{}", digits.chars().map(superscript).collect::<String>());
    }
    super::words::grouped(value)
}

fn superscript(digit: char) -> char {
    let raised = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    digit.to_digit(10).map_or(digit, |digit| raised[digit as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool) -> Chart {
        let axis = |label: &str| Axis::new(label, log, Tick::Number);
        let points = vec![(1_000.0, 12.0), (1_000_000.0, 90_000.0)];
        let series = Series { name: "a < b".to_owned(), stroke: Stroke::Solid, points };
        Chart { title: "t".to_owned(), x: axis("x"), y: axis("y"), ticks_at_points: false, series: vec![series] }
    }

    #[test]
    fn points_lie_between_the_axes_and_words_are_escaped() {
        for log in [true, false] {
            let svg = chart(log).svg();
            assert!(svg.contains("a &lt; b") && svg.contains("polyline") && svg.ends_with("</svg>\n"), "{svg}");
            let circles = svg.lines().filter(|line| line.contains("<circle"));
            let at = |line: &str, name: &str| -> f64 {
                let from = line.find(&format!("{name}=\"")).unwrap() + name.len() + 2;
                line[from..].split('"').next().unwrap().parse().unwrap()
            };
            for circle in circles.take(2) {
                assert!((LEFT..=WIDTH - RIGHT).contains(&at(circle, "cx")), "{circle}");
                assert!((TOP..=HEIGHT - BELOW_AXIS).contains(&at(circle, "cy")), "{circle}");
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!((number(10_000.0), number(1e6), number(0.5)), ("10,000".into(), "10⁶".into(), "0.5".into()));
        assert_eq!((step(100.0), step(61.0), step(0.9)), (20.0, 20.0, 0.2));
    }
}
