//! Aligned tables.

use millpond_trace::printable;

use super::style::{Paint, Style};
use super::wrap::{shortened, wrapped};

/// The spaces between two columns.
const GAP: usize = 2;

/// The fewest characters that a column is narrowed to.
const NARROW: usize = 8;

/// The side of a column at which its cells are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table with a head. Columns are as wide as their widest cell and two spaces apart; a column without any content
/// below its head is left out.
pub(crate) struct Table {
    head: Vec<(&'static str, Align)>,
    /// For each column how early it is left out where the table is too wide, the highest first; 0 is never.
    ranks: Vec<u8>,
    rows: Vec<Vec<String>>,
    /// The colour of a row.
    paints: Vec<Option<Paint>>,
}

/// A table that fits a width.
pub(crate) struct Fitted {
    /// The lines, each with a line break at its end and without trailing spaces.
    pub(crate) text: String,
    /// The heads of the columns that were left out for want of room.
    pub(crate) left_out: Vec<&'static str>,
}

impl Table {
    pub(crate) fn new(head: &[(&'static str, Align)]) -> Self {
        Self { head: head.to_vec(), ranks: vec![0; head.len()], rows: Vec::new(), paints: Vec::new() }
    }

    /// Says which columns are left out where the table is too wide: those with the highest number first, and those with
    /// 0 never.
    ///
    /// # Panics
    ///
    /// If there are more or fewer numbers than columns.
    pub(crate) fn ranked(mut self, ranks: &[u8]) -> Self {
        assert_eq!(ranks.len(), self.head.len(), "{} ranks in a table of {}", ranks.len(), self.head.len());
        self.ranks = ranks.to_vec();
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If the row has more or fewer cells than the head.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.painted_row(None, cells);
    }

    /// Adds a row in a colour.
    ///
    /// # Panics
    ///
    /// If the row has more or fewer cells than the head.
    pub(crate) fn painted_row(&mut self, paint: Option<Paint>, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a row of {} cells in a table of {}", cells.len(), self.head.len());
        self.rows.push(cells.into_iter().map(|cell| printable(&cell).into_owned()).collect());
        self.paints.push(paint);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the columns that are shown.
    fn columns(&self) -> Vec<usize> {
        let filled = |column: &usize| self.rows.iter().any(|row| !row[*column].is_empty());
        (0..self.head.len()).filter(filled).collect()
    }

    /// Returns the table in Markdown, with a bar at every border and a line below the head.
    pub(crate) fn markdown(&self) -> String {
        let columns = self.columns();
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells: String = columns.iter().map(|&column| format!(" {} |", cell(column))).collect();
            format!("|{cells}\n")
        };
        let mut text = line(&|column| self.head[column].0.to_string());
        text += &line(&|column| if self.head[column].1 == Align::Left { "---" } else { "---:" }.to_string());
        for row in &self.rows {
            text += &line(&|column| row[column].replace('|', "\\|"));
        }
        text
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.head[column].0.chars().count()]).max().unwrap_or(0)
    }

    /// Returns the lines, however long, each with a line break at its end and without trailing spaces.
    #[cfg(test)]
    pub(crate) fn render(&self) -> String {
        self.fitted(usize::MAX, Style::PLAIN).text
    }

    /// Returns the table within a width: columns are left out by their rank, and then the cells of the last column are
    /// broken into lines if it has text, and otherwise those of the first column are shortened.
    pub(crate) fn fitted(&self, width: usize, style: Style) -> Fitted {
        let mut columns = self.columns();
        let mut left_out = Vec::new();
        let total = |columns: &[usize]| -> usize {
            columns.iter().map(|&column| self.width_of(column) + GAP).sum::<usize>().saturating_sub(GAP)
        };
        while total(&columns) > width
            && let Some(at) = (0..columns.len()).max_by_key(|&at| self.ranks[columns[at]])
            && self.ranks[columns[at]] > 0
        {
            left_out.push(columns.remove(at));
        }
        left_out.sort_unstable();
        let mut widths: Vec<usize> = columns.iter().map(|&column| self.width_of(column)).collect();
        let over = total(&columns).saturating_sub(width);
        let last_is_text = columns.len() > 1 && columns.last().is_some_and(|&last| self.head[last].1 == Align::Left);
        let narrowed = if last_is_text { columns.len() - 1 } else { 0 };
        if over > 0 && !columns.is_empty() {
            let least = self.head[columns[narrowed]].0.chars().count().max(NARROW);
            widths[narrowed] = widths[narrowed].saturating_sub(over).max(least.min(widths[narrowed]));
        }
        let heads: Vec<String> = self.head.iter().map(|(name, _)| (*name).to_string()).collect();
        let head = self.lines(&heads, (&columns, &widths), last_is_text, (style, Some(Paint::Head)));
        let rows = self.rows.iter().zip(&self.paints);
        let rows = rows.map(|(row, paint)| self.lines(row, (&columns, &widths), last_is_text, (style, *paint)));
        Fitted {
            text: std::iter::once(head).chain(rows).collect(),
            left_out: left_out.into_iter().map(|column| self.head[column].0).collect(),
        }
    }

    /// Returns the lines of a row. The cells of the last column take several where they are broken.
    fn lines(
        &self,
        row: &[String],
        (columns, widths): (&[usize], &[usize]),
        breaks: bool,
        (style, paint): (Style, Option<Paint>),
    ) -> String {
        let mut parts: Vec<Vec<String>> = Vec::new();
        for (at, (&column, &width)) in columns.iter().zip(widths).enumerate() {
            let cell = &row[column];
            let fits = cell.chars().count() <= width;
            parts.push(if breaks && at + 1 == columns.len() && !fits {
                wrapped(cell, width)
            } else {
                vec![shortened(cell, width)]
            });
        }
        let mut text = String::new();
        for line in 0..parts.iter().map(Vec::len).max().unwrap_or(0) {
            let mut whole = String::new();
            for (at, (&column, &width)) in columns.iter().zip(widths).enumerate() {
                let cell = parts[at].get(line).map_or("", String::as_str);
                let gap = if at == 0 { 0 } else { GAP };
                whole += &match self.head[column].1 {
                    Align::Left => format!("{:gap$}{cell:<width$}", ""),
                    Align::Right => format!("{:gap$}{cell:>width$}", ""),
                };
            }
            let whole = whole.trim_end();
            text += &paint.map_or_else(|| whole.to_owned(), |paint| style.paint(paint, whole));
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_empty_ones_are_left_out() {
        let mut table = Table::new(&[("name", Align::Left), ("torch", Align::Right), ("bytes", Align::Right)]);
        table.row(vec!["gpt2".into(), String::new(), "7".into()]);
        table.row(vec!["a".into(), String::new(), "1234567".into()]);
        assert_eq!(table.render(), "name    bytes\ngpt2        7\na     1234567\n");
    }

    #[test]
    fn markdown_says_the_same_between_bars() {
        let mut table = Table::new(&[("name", Align::Left), ("torch", Align::Right), ("bytes", Align::Right)]);
        table.row(vec!["a|b".into(), String::new(), "7".into()]);
        table.row(vec!["c".into(), String::new(), String::new()]);
        assert_eq!(table.markdown(), "| name | bytes |\n| --- | ---: |\n| a\\|b | 7 |\n| c |  |\n");
    }

    #[test]
    fn an_empty_cell_keeps_its_place() {
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Left), ("c", Align::Right)]);
        table.row(vec![String::new(), "x".into(), "1".into()]);
        table.row(vec!["yy".into(), String::new(), "22".into()]);
        assert_eq!(table.render(), "a   b   c\n    x   1\nyy     22\n");
    }

    #[test]
    fn a_table_that_is_too_wide_leaves_out_columns_and_then_shortens_names() {
        let head = [("trace", Align::Left), ("events", Align::Right), ("bytes", Align::Right), ("calls", Align::Right)];
        let mut table = Table::new(&head).ranked(&[0, 2, 1, 0]);
        table.row(vec!["a_name_that_is_quite_long".into(), "71301".into(), "12345".into(), "7".into()]);
        let whole = table.fitted(80, Style::PLAIN);
        assert!(whole.left_out.is_empty() && whole.text == table.render(), "{}", whole.text);
        let some = table.fitted(40, Style::PLAIN);
        assert_eq!((some.left_out, some.text.lines().map(str::len).max()), (vec!["events"], Some(39)));
        let few = table.fitted(20, Style::PLAIN);
        assert_eq!(few.left_out, ["events", "bytes"]);
        assert_eq!(few.text, "trace          calls\na_name_t…long      7\n");
    }

    #[test]
    fn text_in_the_last_column_is_broken_into_lines() {
        let mut table = Table::new(&[("scenarios", Align::Right), ("because", Align::Left)]);
        table.row(vec!["12".into(), "the device has no virtual memory".into()]);
        assert_eq!(
            table.fitted(30, Style::PLAIN).text,
            "scenarios  because\n       12  the device has no\n           virtual memory\n"
        );
    }
}
