//! Aligned tables.

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
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[(&'static str, Align)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If the row has more or fewer cells than the head.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a row of {} cells in a table of {}", cells.len(), self.head.len());
        self.rows.push(cells);
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

    /// Returns the lines, each with a line break at its end and without trailing spaces.
    pub(crate) fn render(&self) -> String {
        let columns = self.columns();
        let head: Vec<String> = self.head.iter().map(|(name, _)| (*name).to_string()).collect();
        let lines = || std::iter::once(&head).chain(&self.rows);
        let width = |column: usize| lines().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = columns.iter().map(|&column| width(column)).collect();
        let mut text = String::new();
        for row in lines() {
            let mut line = String::new();
            for (&column, &width) in columns.iter().zip(&widths) {
                let gap = if line.is_empty() && column == columns[0] { "" } else { "  " };
                let cell = &row[column];
                line += &match self.head[column].1 {
                    Align::Left => format!("{gap}{cell:<width$}"),
                    Align::Right => format!("{gap}{cell:>width$}"),
                };
            }
            text += line.trim_end();
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
}
