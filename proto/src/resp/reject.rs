//! What is wrong with a reply's bytes. Made by the scanner only; after any of them the connection is of no use, since
//! where the next reply begins is not known.

use core::fmt;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $message:literal;)*) => {
        /// A breach of the protocol or of a limit, by Redis or whoever stands in its place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RespReject { $($(#[$doc])* $name,)* }

        impl RespReject {
            /// Every breach.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        /// One English phrase; repeats no byte of the reply.
        impl fmt::Display for RespReject {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $message,)* })
            }
        }

        impl core::error::Error for RespReject {}
    };
}

rejects! {
    /// The first byte of an element is none of the types'.
    TypeUnknown = "an element of no type of RESP2 or RESP3";
    /// CR without LF, or LF without CR, in a line.
    LineEnd = "a line that does not end with CR LF";
    /// A line over `RESP_LINE_BYTES_MAX`.
    LineTooLong = "a line of more than 4096 bytes";
    /// Not a sign and digits without leading zeros, or outside the 64 bits.
    Integer = "an integer that is not one of 64 bits in plain decimal digits";
    /// A length or count that is not plain digits (or -1 where a null may stand).
    Length = "a length that is not plain decimal digits";
    /// `RESP_BULK_BYTES_MAX`.
    BulkTooLarge = "a string of more than 65536 bytes";
    /// A string that is not followed by CR LF where its length says.
    BulkEnd = "a string that does not end where its length says";
    /// `RESP_ELEMENTS_MAX`.
    TooManyElements = "a reply of more than 65536 elements";
    /// `RESP_DEPTH_MAX`.
    TooDeep = "a reply of more than 8 aggregates inside one another";
    /// `RESP_REPLY_BYTES_MAX`.
    ReplyTooLarge = "a reply of more than 1048576 bytes";
    /// A RESP3 null with anything in its line.
    Null = "a null that says something";
    /// Neither `t` nor `f`.
    Boolean = "a boolean that is neither t nor f";
    /// Not of the text's grammar of doubles.
    Double = "a double that is no decimal number, inf or nan";
    /// Not a sign and digits.
    BigNumber = "a big number that is not decimal digits";
    /// A verbatim string without its format: three bytes and a colon.
    Verbatim = "a verbatim string that does not begin with its format";
    /// A string or aggregate of a length that is told later.
    Streamed = "a streamed string or aggregate, which no Redis sends";
    /// A push inside another element; the text: always at the top level.
    PushInside = "a push inside a reply";
}
