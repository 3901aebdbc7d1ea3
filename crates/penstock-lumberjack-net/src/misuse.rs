use arrow_schema::DataType;

/// Mistakes by the caller of this driver, of a spool or of a spool's reader; nothing was sent or
/// stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A sender without a receiver.
    #[error("hosts is empty")]
    NoHosts,
    /// A call after the end of a sender.
    #[error("the sender is closed")]
    Closed,
    /// Events from a column that a batch does not have.
    #[error("there is no column {column:?}")]
    NoColumn {
        /// The name of the column.
        column: String,
    },
    /// Events from a column of another type.
    #[error("the column {column:?} has strings or bytes, not {found}")]
    EventColumn {
        /// The name of the column.
        column: String,
        /// The column's type.
        found: DataType,
    },
    /// A batch that is not in the raw layout where one is required.
    #[error("the batch is not of the raw layout: it has no column {column}")]
    RawColumn {
        /// The name of the missing column.
        column: String,
    },
    /// A metadata column of the wrong type.
    #[error("the column {column} has the type {found}; it must be {wanted}")]
    MetadataColumn {
        /// The name of the column.
        column: String,
        /// The column's type.
        found: DataType,
        /// The type of the metadata.
        wanted: DataType,
    },
    /// A column that is nested too deeply.
    #[error("the column {column} is nested deeper than {limit}")]
    NestedColumn {
        /// The name of the column, with those of the columns around it.
        column: String,
        /// The deepest nesting.
        limit: usize,
    },
    /// A column of maps whose keys are not strings.
    #[error("the column {column} is a map of {found}: keys are strings")]
    MapColumn {
        /// The name of the column, with those of the columns around it.
        column: String,
        /// The type of the entries.
        found: DataType,
    },
    /// A column of a type that no JSON value can be converted into.
    #[error("the column {column} has the type {found}, which is not supported")]
    ColumnType {
        /// The name of the column, with those of the columns around it.
        column: String,
        /// The column's type.
        found: DataType,
    },
    /// Columns that do not form a batch.
    #[error("{reason}")]
    Batch {
        /// The message of the Arrow library.
        reason: String,
    },
    /// A folder or a prefix without a spool.
    #[error("{place} is no spool")]
    NoSpool {
        /// The folder or the prefix.
        place: String,
    },
    /// A folder without the ID file of a spool.
    #[error("{place} is no spool: it has no file {file}")]
    NoSpoolFile {
        /// The folder.
        place: String,
        /// The name of the missing file.
        file: &'static str,
    },
    /// A prefix without the ID object of a spool.
    #[error("{place} is no spool: it has no object {object}")]
    NoSpoolObject {
        /// The prefix.
        place: String,
        /// The name of the missing object.
        object: &'static str,
    },
    /// A reader with a key that is not the spool's.
    #[error("{address}: the read key is wrong")]
    ReadKey {
        /// The URL of the spool's service.
        address: String,
    },
    /// A request for more bytes than a service sends at a time.
    #[error("an answer has at most {limit} bytes")]
    AnswerLength {
        /// The maximum number of bytes.
        limit: u64,
    },
    /// A commit to a store that only reads the segments.
    #[error("only who writes a spool can take commits: connect to the receiver")]
    ReadOnly,
    /// A reader whose name is empty or too long.
    #[error("a reader's name has 1 to 128 bytes")]
    ReaderName,
    /// The commit of a position after the end of the spool: later rows would count as read when
    /// they arrive.
    #[error(
        "the reader {reader:?} commits row {row} of segment {segment}, and the spool does not reach beyond row \
         {last_row} of segment {last_segment}: is it the spool that was read?"
    )]
    CommitPosition {
        /// The name of the reader.
        reader: String,
        /// The committed row.
        row: u64,
        /// The segment of that row.
        segment: u64,
        /// The last row that the spool reaches to.
        last_row: u64,
        /// The segment of that row.
        last_segment: u64,
    },
}

#[cfg(test)]
mod tests {
    use penstock_wire::ErrorKind;

    use super::*;
    use crate::Error;

    /// Check the message of each mistake, which is also the message of the driver's error.
    fn check<const N: usize>(table: [(Misuse, &str); N]) {
        for (misuse, message) in table {
            let error = Error::from(misuse);
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Misuse, message), "{error:?}");
        }
    }

    #[test]
    fn a_wrong_sender_or_column_is_refused_with_the_reason() {
        let column = || "a.b".to_owned();
        check([
            (Misuse::NoHosts, "hosts is empty"),
            (Misuse::Closed, "the sender is closed"),
            (Misuse::NoColumn { column: column() }, "there is no column \"a.b\""),
            (
                Misuse::EventColumn { column: column(), found: DataType::Int64 },
                "the column \"a.b\" has strings or bytes, not Int64",
            ),
            (Misuse::RawColumn { column: column() }, "the batch is not of the raw layout: it has no column a.b"),
            (
                Misuse::MetadataColumn { column: column(), found: DataType::Utf8, wanted: DataType::Int64 },
                "the column a.b has the type Utf8; it must be Int64",
            ),
            (Misuse::NestedColumn { column: column(), limit: 32 }, "the column a.b is nested deeper than 32"),
            (
                Misuse::MapColumn { column: column(), found: DataType::Int64 },
                "the column a.b is a map of Int64: keys are strings",
            ),
            (
                Misuse::ColumnType { column: column(), found: DataType::Int64 },
                "the column a.b has the type Int64, which is not supported",
            ),
            (Misuse::Batch { reason: "why".to_owned() }, "why"),
        ]);
    }

    #[test]
    fn a_wrong_call_of_a_spool_is_refused_with_the_reason() {
        let place = || "/spool".to_owned();
        let behind =
            Misuse::CommitPosition { reader: "query".to_owned(), row: 6, segment: 1, last_row: 5, last_segment: 1 };
        check([
            (Misuse::NoSpool { place: place() }, "/spool is no spool"),
            (Misuse::NoSpoolFile { place: place(), file: "id" }, "/spool is no spool: it has no file id"),
            (Misuse::NoSpoolObject { place: place(), object: "id" }, "/spool is no spool: it has no object id"),
            (Misuse::ReadKey { address: place() }, "/spool: the read key is wrong"),
            (Misuse::AnswerLength { limit: 7 }, "an answer has at most 7 bytes"),
            (Misuse::ReadOnly, "only who writes a spool can take commits: connect to the receiver"),
            (Misuse::ReaderName, "a reader's name has 1 to 128 bytes"),
            (
                behind,
                "the reader \"query\" commits row 6 of segment 1, and the spool does not reach beyond row 5 of segment \
                 1: is it the spool that was read?",
            ),
        ]);
    }
}
