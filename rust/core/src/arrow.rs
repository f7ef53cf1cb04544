//! Columns of Arrow arrays, read from their buffers. Only what a record has: bytes, text, numbers, lists of headers.

use std::fmt;

/// A column's type, as far as records need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Without values: every row is null.
    Null,
    /// 32-bit numbers.
    Int32,
    /// 64-bit numbers, or timestamps.
    Int64,
    /// Bytes or text with 32-bit offsets.
    Bytes,
    /// Bytes or text with 64-bit offsets.
    LargeBytes,
    /// Lists with 32-bit offsets, whose elements are in the children.
    List,
}

/// A column whose buffers are not what its type needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFault(&'static str);

impl fmt::Display for ColumnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an Arrow column is damaged: {}", self.0)
    }
}

/// A column of rows. Its buffers were checked, so that reading a row cannot fail.
#[derive(Debug)]
pub struct Column {
    kind: ColumnKind,
    /// Rows of the buffers before the first row.
    offset: usize,
    length: usize,
    /// A bit for each row that is not null; empty if none is.
    validity: Vec<u8>,
    /// Numbers, or the ends of bytes and lists.
    fixed: Vec<u8>,
    data: Vec<u8>,
    children: Vec<Column>,
}

impl Column {
    /// Returns a column.
    ///
    /// `buffers` are those of Arrow's columnar format, in its order: validity, then numbers or offsets, then data. The
    /// children of a list are its elements' fields.
    pub fn new(
        kind: ColumnKind,
        offset: usize,
        length: usize,
        buffers: Vec<Option<Vec<u8>>>,
        children: Vec<Self>,
    ) -> Result<Self, ColumnFault> {
        let mut buffers = buffers.into_iter().map(Option::unwrap_or_default);
        let mut next = || buffers.next().unwrap_or_default();
        let (validity, fixed, data) = (next(), next(), next());
        let column = Self {
            kind,
            offset,
            length,
            validity,
            fixed,
            data,
            children,
        };
        column.check()?;
        Ok(column)
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns true if there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the children of a list: the fields of its elements.
    #[must_use]
    pub fn children(&self) -> &[Self] {
        &self.children
    }

    /// Returns the bytes of a row; `None` if it is null, or of another type.
    #[must_use]
    pub fn bytes(&self, row: usize) -> Option<&[u8]> {
        let wide = match self.kind {
            ColumnKind::Bytes => false,
            ColumnKind::LargeBytes => true,
            _ => return None,
        };
        if !self.is_valid(row) {
            return None;
        }
        let at = self.offset + row;
        self.data.get(self.end(at, wide)?..self.end(at + 1, wide)?)
    }

    /// Returns the number of a row; `None` if it is null, or of another type.
    #[must_use]
    pub fn number(&self, row: usize) -> Option<i64> {
        if !self.is_valid(row) {
            return None;
        }
        let at = self.offset + row;
        match self.kind {
            ColumnKind::Int32 => int32(&self.fixed, at).map(i64::from),
            ColumnKind::Int64 => int64(&self.fixed, at),
            _ => None,
        }
    }

    /// Returns the elements of a row of lists, as rows of the children; `None` if it is null, or of another type.
    #[must_use]
    pub fn elements(&self, row: usize) -> Option<std::ops::Range<usize>> {
        if self.kind != ColumnKind::List || !self.is_valid(row) {
            return None;
        }
        let at = self.offset + row;
        Some(self.end(at, false)?..self.end(at + 1, false)?)
    }

    fn is_valid(&self, row: usize) -> bool {
        let at = self.offset + row;
        let bit = |byte: &u8| byte >> (at % 8) & 1 == 1;
        row < self.length
            && self.kind != ColumnKind::Null
            && (self.validity.is_empty() || self.validity.get(at / 8).is_some_and(bit))
    }

    fn end(&self, at: usize, wide: bool) -> Option<usize> {
        if wide {
            int64(&self.fixed, at).and_then(|end| usize::try_from(end).ok())
        } else {
            int32(&self.fixed, at).and_then(|end| usize::try_from(end).ok())
        }
    }

    fn check(&self) -> Result<(), ColumnFault> {
        let rows = self
            .offset
            .checked_add(self.length)
            .ok_or(ColumnFault("it has too many rows"))?;
        if self.length == 0 || self.kind == ColumnKind::Null {
            return Ok(());
        }
        if !self.validity.is_empty() && self.validity.len() < rows.div_ceil(8) {
            return Err(ColumnFault("its validity is too short"));
        }
        let (wide, most) = match self.kind {
            ColumnKind::Null => return Ok(()),
            ColumnKind::Int32 | ColumnKind::Int64 => {
                let width = if self.kind == ColumnKind::Int32 { 4 } else { 8 };
                let enough = rows
                    .checked_mul(width)
                    .is_some_and(|size| size <= self.fixed.len());
                return enough
                    .then_some(())
                    .ok_or(ColumnFault("it has too few numbers"));
            }
            ColumnKind::Bytes => (false, self.data.len()),
            ColumnKind::LargeBytes => (true, self.data.len()),
            ColumnKind::List => {
                let [first, others @ ..] = &self.children[..] else {
                    return Err(ColumnFault("a list has no elements' type"));
                };
                if others.iter().any(|other| other.len() != first.len()) {
                    return Err(ColumnFault("fields of elements differ in length"));
                }
                (false, first.len())
            }
        };
        let mut before = 0;
        for at in self.offset..=rows {
            let end = self
                .end(at, wide)
                .ok_or(ColumnFault("it has too few offsets"))?;
            if end < before || end > most {
                return Err(ColumnFault("an offset is not in its data"));
            }
            before = end;
        }
        Ok(())
    }
}

fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    let start = at.checked_mul(4)?;
    let bytes = bytes.get(start..start.checked_add(4)?)?;
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}

fn int64(bytes: &[u8], at: usize) -> Option<i64> {
    let start = at.checked_mul(8)?;
    let bytes = bytes.get(start..start.checked_add(8)?)?;
    Some(i64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Column, ColumnKind};

    #[allow(clippy::unnecessary_wraps)] // a buffer may be missing
    fn ints(values: &[i32]) -> Option<Vec<u8>> {
        Some(values.iter().flat_map(|one| one.to_le_bytes()).collect())
    }

    fn text(offset: usize, length: usize, validity: Option<Vec<u8>>) -> Column {
        let buffers = vec![validity, ints(&[0, 1, 1, 4, 6]), Some(b"abcdef".to_vec())];
        Column::new(ColumnKind::Bytes, offset, length, buffers, vec![]).unwrap()
    }

    #[test]
    fn bytes_are_read_with_nulls_and_behind_an_offset() {
        let all = text(0, 4, None);
        let rows: Vec<_> = (0..5).map(|row| all.bytes(row)).collect();
        let expected: [Option<&[u8]>; 5] = [Some(b"a"), Some(b""), Some(b"bcd"), Some(b"ef"), None];
        assert_eq!(rows, expected);
        let rest = text(2, 2, Some(vec![0b0000_1000]));
        assert_eq!((rest.bytes(0), rest.bytes(1)), (None, Some(&b"ef"[..])));
    }

    #[test]
    fn numbers_and_lists_are_read() {
        let numbers = Column::new(
            ColumnKind::Int32,
            1,
            2,
            vec![None, ints(&[7, -8, 9])],
            vec![],
        );
        let numbers = numbers.unwrap();
        assert_eq!((numbers.number(0), numbers.number(1)), (Some(-8), Some(9)));
        let lists = vec![None, ints(&[0, 3, 4])];
        let lists = Column::new(ColumnKind::List, 0, 2, lists, vec![text(0, 4, None)]).unwrap();
        assert_eq!(lists.elements(0), Some(0..3));
        assert_eq!(lists.elements(1), Some(3..4));
        let nulls = Column::new(ColumnKind::Null, 0, 2, vec![], vec![]).unwrap();
        assert_eq!(
            (nulls.bytes(0), nulls.number(1), nulls.elements(0)),
            (None, None, None)
        );
    }

    #[test]
    fn buffers_that_do_not_hold_what_they_should_are_refused() {
        let data = || Some(b"abc".to_vec());
        for (kind, buffers) in [
            (ColumnKind::Bytes, vec![None, ints(&[0, 4]), data()]),
            (ColumnKind::Bytes, vec![None, ints(&[2, 1]), data()]),
            (ColumnKind::Bytes, vec![None, ints(&[-1, 1]), data()]),
            (ColumnKind::Bytes, vec![None, ints(&[0]), data()]),
            (ColumnKind::Bytes, vec![Some(vec![]), None, None]),
            (ColumnKind::LargeBytes, vec![None, ints(&[0, 1]), data()]),
            (ColumnKind::Int32, vec![None, None]),
            (ColumnKind::Int64, vec![None, ints(&[1])]),
            (ColumnKind::List, vec![None, ints(&[0, 0])]),
        ] {
            assert!(
                Column::new(kind, 0, 1, buffers, vec![]).is_err(),
                "{kind:?}"
            );
        }
        let short = vec![Some(vec![1]), ints(&[0; 10]), data()];
        assert!(Column::new(ColumnKind::Bytes, 0, 9, short, vec![]).is_err());
    }
}
